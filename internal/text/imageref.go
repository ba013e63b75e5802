package text

import (
	"errors"
	"fmt"
	"strings"
)

// The errors of [ParseImageRef] that do not name a part of the reference.
var (
	ErrImageFormat     = errors.New("invalid reference format")
	ErrImageUppercase  = errors.New("repository name must be lowercase")
	ErrImageTooLong    = fmt.Errorf("repository name must not be more than %d characters", maxPath)
	ErrDigestFormat    = errors.New("invalid checksum digest format")
	ErrDigestLength    = errors.New("invalid checksum digest length")
	ErrDigestAlgorithm = errors.New("unsupported digest algorithm")
)

const (
	defaultDomain = "docker.io"
	legacyDomain  = "index.docker.io"
	official      = "library/"

	maxPath = 255
	maxTag  = 128
	// minHex is the minimum number of hexadecimal digits of a digest.
	minHex = 32
)

// ImageRef is a valid image reference.
type ImageRef struct {
	// Repository is the full name, "domain/path". Short names are in docker.io.
	Repository string
	// Tag and Digest are "" if the reference has none.
	Tag, Digest string
}

// ParseImageRef parses an image reference as container runtimes do. It accepts the same references as
// github.com/distribution/reference, with the same errors, without the regular expressions that a
// program with that package compiles at each start: a program that starts process containers starts
// once for each of them.
func ParseImageRef(image string) (ImageRef, error) {
	if len(image) == 64 && only(image, lowerHex) {
		return ImageRef{}, fmt.Errorf("invalid repository name (%s), cannot specify 64-byte hexadecimal strings", image)
	}
	domain, rest := split(image)
	if path, _, _ := strings.Cut(rest, ":"); strings.ToLower(path) != path {
		return ImageRef{}, fmt.Errorf("invalid reference format: repository name (%s) must be lowercase", path)
	}
	path, tag, digest, ok := parse(domain, rest)
	if !ok {
		if _, _, _, ok := parse(strings.ToLower(domain), strings.ToLower(rest)); ok {
			return ImageRef{}, ErrImageUppercase
		}
		return ImageRef{}, ErrImageFormat
	}
	name := domain + "/" + path
	if !isDomain(domain) { // then it is the first component of the path
		path = name
	}
	if len(path) > maxPath {
		return ImageRef{}, ErrImageTooLong
	}
	if digest != "" {
		if err := checkDigest(digest); err != nil {
			return ImageRef{}, err
		}
	}
	return ImageRef{Repository: name, Tag: tag, Digest: digest}, nil
}

// split adds the default domain, and the default namespace in this domain.
func split(image string) (domain, rest string) {
	first, after, found := strings.Cut(image, "/")
	switch {
	case !found:
		return defaultDomain, official + image
	case first == legacyDomain:
		domain, rest = defaultDomain, after
	case first == "localhost", strings.ContainsAny(first, ".:"), strings.ToLower(first) != first:
		domain, rest = first, after
	default:
		domain, rest = defaultDomain, image
	}
	if domain == defaultDomain && !strings.Contains(rest, "/") {
		rest = official + rest
	}
	return domain, rest
}

// parse splits path[:tag][@digest] and checks the form of each part.
func parse(domain, rest string) (path, tag, digest string, ok bool) {
	path, digest, digested := strings.Cut(rest, "@")
	path, tag, tagged := strings.Cut(path, ":")
	ok = (isDomain(domain) || isComponent(domain)) && (!tagged || isTag(tag)) && (!digested || isDigest(digest))
	for component := range strings.SplitSeq(path, "/") {
		ok = ok && isComponent(component)
	}
	return path, tag, digest, ok
}

// isDomain reports whether s is a host with an optional port.
func isDomain(s string) bool {
	host := s
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		if i+1 == len(s) || !only(s[i+1:], digit) {
			return false
		}
		host = s[:i]
	}
	if inner, ok := strings.CutPrefix(host, "["); ok { // an IPv6 address
		inner, ok = strings.CutSuffix(inner, "]")
		return ok && inner != "" &&
			only(inner, func(c byte) bool { return lowerHex(c) || 'A' <= c && c <= 'F' || c == ':' })
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' ||
			!only(label, func(c byte) bool { return alphanumeric(c) || c == '-' }) {
			return false
		}
	}
	return true
}

// isComponent reports whether s is a component of a path: lower-case letters and digits,
// separated by one period, one or two underscores, or dashes.
func isComponent(s string) bool {
	if s == "" || !lower(s[0]) || !lower(s[len(s)-1]) {
		return false
	}
	for i := 0; i < len(s); i++ {
		if lower(s[i]) {
			continue
		}
		begin := i
		for !lower(s[i+1]) { // the last one is lower
			i++
		}
		switch separator := s[begin : i+1]; {
		case separator == ".", separator == "_", separator == "__", strings.Trim(separator, "-") == "":
		default:
			return false
		}
	}
	return true
}

func isTag(s string) bool {
	return s != "" && len(s) <= maxTag && s[0] != '.' && s[0] != '-' &&
		only(s, func(c byte) bool { return alphanumeric(c) || c == '_' || c == '.' || c == '-' })
}

// isDigest reports whether s has the form of a digest, of whatever algorithm.
func isDigest(s string) bool {
	algorithm, sum, ok := strings.Cut(s, ":")
	if !ok || len(sum) < minHex || !only(sum, func(c byte) bool { return lowerHex(c) || 'A' <= c && c <= 'F' }) {
		return false
	}
	start := true // of a part, which begins with a letter
	for i := range len(algorithm) {
		switch c := algorithm[i]; {
		case strings.IndexByte("-_+.", c) >= 0 && !start:
			start = true
		case !alphanumeric(c) || start && digit(c):
			return false
		default:
			start = false
		}
	}
	return !start
}

// checkDigest checks the algorithm and the sum of a digest.
func checkDigest(s string) error {
	algorithm, sum, _ := strings.Cut(s, ":")
	size, ok := map[string]int{"sha256": 64, "sha384": 96, "sha512": 128}[algorithm]
	switch {
	case !ok && strings.ToLower(algorithm) != algorithm:
		return ErrDigestFormat
	case !ok:
		return ErrDigestAlgorithm
	case len(sum) != size:
		return ErrDigestLength
	case !only(sum, lowerHex):
		return ErrDigestFormat
	}
	return nil
}

func only(s string, is func(byte) bool) bool {
	for i := range len(s) {
		if !is(s[i]) {
			return false
		}
	}
	return true
}

func digit(c byte) bool        { return '0' <= c && c <= '9' }
func lower(c byte) bool        { return digit(c) || 'a' <= c && c <= 'z' }
func alphanumeric(c byte) bool { return lower(c) || 'A' <= c && c <= 'Z' }
func lowerHex(c byte) bool     { return digit(c) || 'a' <= c && c <= 'f' }
