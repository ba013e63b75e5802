package translate

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

func TestParseResolvConf(t *testing.T) {
	for name, tc := range map[string]struct {
		in   string
		want ResolvConf
		err  string
	}{
		"empty":              {},
		"comments":           {in: "# nameserver 1.1.1.1\n;nameserver 1.1.1.1\n  # x\n"},
		"servers add up":     {in: "nameserver 1.1.1.1\n\tnameserver  ::1  # x\r\n", want: ResolvConf{Nameservers: []string{"1.1.1.1", "::1"}}},
		"no address":         {in: "nameserver\n", err: "resolv.conf has a nameserver line without an address"},
		"last search counts": {in: "search a b\nsearch c. . d\n", want: ResolvConf{Searches: []string{"c", "d"}}},
		"search of nothing":  {in: "search a\nsearch\n"},
		"options":            {in: "options ndots:2 rotate\noptions ndots:3 x\noptions\n", want: ResolvConf{Options: []string{"ndots:3", "rotate", "x"}}},
		"unknown":            {in: "domain x\nsortlist 1.2.3.4\nnameservers 1\n"},
		"no newline at end":  {in: "nameserver 1.1.1.1", want: ResolvConf{Nameservers: []string{"1.1.1.1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseResolvConf([]byte(tc.in))
			if tc.err != "" {
				assert.EqualError(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tc.want, got)
		})
	}
	_, err := ParseResolvConf(bytes.Repeat([]byte("#"), MaxResolvConf+1))
	assert.ErrorContains(t, err, "longer than 10485760")
}

func FuzzResolvConf(f *testing.F) {
	f.Add([]byte("nameserver 1.1.1.1\nsearch a b. .\noptions ndots:5 rotate\n"))
	f.Add([]byte("nameserver"))
	f.Fuzz(func(t *testing.T, data []byte) {
		conf, err := ParseResolvConf(data)
		if err != nil {
			assert.Equal(t, ResolvConf{}, conf)
			return
		}
		// What was read is written so that it reads the same.
		var b strings.Builder
		for _, s := range conf.Nameservers {
			b.WriteString("nameserver " + s + "\n")
		}
		for _, o := range conf.Options {
			b.WriteString("options " + o + "\n")
		}
		b.WriteString("search")
		for _, s := range conf.Searches {
			b.WriteString(" " + s + ".")
		}
		again, err := ParseResolvConf([]byte(b.String()))
		if assert.NoError(t, err) {
			assert.Equal(t, conf.Nameservers, again.Nameservers)
			assert.Equal(t, conf.Options, again.Options)
			assert.Equal(t, conf.Searches, again.Searches)
		}
		// Whatever stands there, a pod gets no more than resolvers take.
		limited, _ := limitDNS(mergeDNS(conf, &v1.PodDNSConfig{Searches: []string{"x"}}))
		assert.LessOrEqual(t, len(limited.Nameservers), maxNameservers)
		assert.LessOrEqual(t, len(limited.Searches), maxSearches)
		assert.LessOrEqual(t, len(strings.Join(limited.Searches, " ")), maxSearchChars)
	})
}
