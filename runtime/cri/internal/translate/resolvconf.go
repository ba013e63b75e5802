package translate

import (
	"errors"
	"fmt"
	"strings"
)

// MaxResolvConf is the limit for a resolv.conf in bytes.
const MaxResolvConf = 10 << 20

// ResolvConf is the part of a resolv.conf that pods inherit.
type ResolvConf struct {
	Nameservers []string
	// Searches are domains without the final dot.
	Searches []string
	// Options in the form "name" or "name:value", each name once.
	Options []string
}

// ParseResolvConf parses a resolv.conf(5). All nameserver lines are used; of several search
// lines, and of several options with the same name, the last is used. Unknown keywords
// are ignored. A nameserver line without an address is an error, and so is a file of more
// than 10 MiB.
func ParseResolvConf(data []byte) (ResolvConf, error) {
	if len(data) > MaxResolvConf {
		return ResolvConf{}, fmt.Errorf("resolv.conf of %d bytes is longer than %d", len(data), MaxResolvConf)
	}
	var conf ResolvConf
	options := newOptions(nil)
	for line := range strings.SplitSeq(string(data), "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		switch keyword, args := fields[0], fields[1:]; keyword {
		case "nameserver":
			if len(args) == 0 {
				return ResolvConf{}, errors.New("resolv.conf has a nameserver line without an address")
			}
			conf.Nameservers = append(conf.Nameservers, args[0])
		case "search":
			conf.Searches = nil
			for _, domain := range args {
				if domain != "." { // the root domain has no effect
					conf.Searches = append(conf.Searches, strings.TrimSuffix(domain, "."))
				}
			}
		case "options":
			for _, option := range args {
				options.set(option)
			}
		}
	}
	conf.Options = options.list
	return conf, nil
}

// options are those of a resolver, each name once.
type options struct {
	list []string
	// index has the place of each name in the list.
	index map[string]int
}

func newOptions(list []string) *options {
	o := &options{index: make(map[string]int, len(list))}
	for _, option := range list {
		o.set(option)
	}
	return o
}

// set adds an option, or replaces the one with the same name.
func (o *options) set(option string) {
	name, _, _ := strings.Cut(option, ":")
	if i, ok := o.index[name]; ok {
		o.list[i] = option
		return
	}
	o.index[name] = len(o.list)
	o.list = append(o.list, option)
}
