package client

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
)

func TestFlagsMayBeBeforeTheCommand(t *testing.T) {
	for _, tt := range []struct {
		args string
		name string // "" for the agent
		rest string
	}{
		{"", "", ""},
		{"--runonce", "", ""},
		{"--root-dir pods", "", ""},
		{"--root-dir=x manifests", "", ""},
		{"-- pods", "", ""},
		{"--no-such-flag pods", "", ""},
		{"pods", "pods", ""},
		{"--root-dir x pods", "pods", "--root-dir=x"},
		{"--root-dir x -n=ns pods --root-dir y", "pods", "--root-dir=x --namespace=ns --root-dir y"},
		{"-n ns logs -f web", "logs", "--namespace=ns -f web"},
		{"-f --tail 3 logs web", "logs", "--follow=true --tail=3 web"},
		{"-h logs", "logs", "--help=true"},
		{"--help exec", "exec", "--help=true"},
		{"exec web -- pods -h", "exec", "web -- pods -h"},
		{"--root-dir x drain", "stop", "--root-dir=x"},
		{"help logs", "help", "logs"},
	} {
		name, rest, ok := Split(strings.Fields(tt.args), config.Flags())
		assert.Equal(t, tt.name, name, tt.args)
		assert.Equal(t, tt.name != "", ok, tt.args)
		assert.Equal(t, tt.rest, strings.Join(rest, " "), tt.args)
	}
}

func TestHelp(t *testing.T) {
	help := func(args ...string) (string, error) {
		var out strings.Builder
		err := runCommand(t.Context(), args, &out, &strings.Builder{})
		return out.String(), err
	}
	all, err := help("help")
	require.NoError(t, err)
	for _, c := range commands() {
		assert.Contains(t, all, "\n  "+c.name)
		text, err := help("help", c.name)
		require.NoError(t, err)
		assert.Contains(t, text, "minikubelet "+c.name)
		assert.Contains(t, text, "--root-dir")
		for _, flag := range []string{"-h", "--help"} {
			same, err := help(c.name, flag)
			require.ErrorIs(t, err, pflag.ErrHelp)
			assert.Equal(t, text, same)
			same, err = help(flag, c.name)
			require.ErrorIs(t, err, pflag.ErrHelp)
			assert.Equal(t, text, same)
		}
	}
	text, err := help("logs", "--help")
	require.ErrorIs(t, err, pflag.ErrHelp)
	assert.Contains(t, text, "--previous")
	text, err = help("help", "drain")
	require.NoError(t, err)
	assert.Contains(t, text, "End all pods, and then the agent.")
	_, err = help("help", "pod")
	require.ErrorContains(t, err, `there is no command "pod"; minikubelet help lists all`)
}
