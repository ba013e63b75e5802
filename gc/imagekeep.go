package gc

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// kept are the names of [ImagePolicy].Keep.
type kept struct {
	names    map[string]bool
	prefixes []string
}

// newKept parses the names. Its error has all that are not valid.
func newKept(list []string) (kept, error) {
	k := kept{names: map[string]bool{}}
	var errs []error
	for _, name := range list {
		if prefix, ok := strings.CutSuffix(name, "*"); ok {
			registry, _, found := strings.Cut(prefix, "/")
			if !found || registry != "localhost" && !strings.ContainsAny(registry, ".:") {
				errs = append(errs, fmt.Errorf("images %q that are to be kept: must begin with a registry, as in "+
					"docker.io/library/nginx*", name))
				continue
			}
			k.prefixes = append(k.prefixes, prefix)
			continue
		}
		parsed, err := podspec.ParseImageName(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("image %q that is to be kept: %w", name, err))
			continue
		}
		k.names[parsed.FullName] = true
	}
	return k, errors.Join(errs...)
}

// has reports whether one of the names of the image, which are full ones, is kept.
func (k *kept) has(image *runtime.Image) bool {
	if len(k.names) == 0 && len(k.prefixes) == 0 {
		return false
	}
	is := func(name string) bool {
		return k.names[name] ||
			slices.ContainsFunc(k.prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
	}
	return slices.ContainsFunc(image.Tags, is) || slices.ContainsFunc(image.Digests, is)
}
