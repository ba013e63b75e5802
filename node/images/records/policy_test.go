package records

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const digest = "sha256:38a8906435c4dd5f4258899d46621bfd8eea3ad6ff494ee3c2f17ef0321625bd"

func TestAllowlist(t *testing.T) {
	for _, c := range []struct {
		image    string
		patterns []string
		permits  bool
	}{
		{"reg.example/a/app:1", nil, false},
		{"reg.example/a/app:1", []string{"reg.example/a/one", "reg.example/a/two"}, false},
		{"reg.example/a/app:1", []string{"reg.example/a/one", "reg.example/a/app"}, true},
		{"reg.example/a/app", []string{"reg.example/a/app"}, true},
		{"reg.example/a/app@" + digest, []string{"reg.example/a/app"}, true},
		{"reg.example/a/app:1@" + digest, []string{"reg.example/a/app"}, true},
		{"reg.example/a/application:1", []string{"reg.example/a/app"}, false},
		{"reg.example/a/app:1", []string{"other.example/a/*"}, false},
		{"reg.example/a/app:1", []string{"reg.example/a/*"}, true},
		{"reg.example/a/app:1", []string{"reg.example/*"}, true},
		{"reg.example/ab/app:1", []string{"reg.example/a/*"}, false},
		{"reg.example:5000/a/app:1", []string{"reg.example:5000/*"}, true},
		{"reg.example:5000/a/app:1", []string{"reg.example/*"}, false},
		{"ubuntu", []string{"docker.io/library/ubuntu"}, false}, // as in kubelet
		{"ubuntu", []string{"docker.io/library/*"}, false},
		{"ubuntu", []string{"ubuntu"}, true},
		{"ubuntu:24.04", []string{"ubuntu"}, true},
		{"ubuntu@" + digest, []string{"ubuntu"}, true},
		{"reg.example/NOT-VALID", []string{"reg.example/*"}, true},
	} {
		r, err := newRule(NeverVerifyAllowlistedImages, c.patterns)
		require.NoError(t, err, c.patterns)
		assert.Equal(t, c.permits, r.permits(c.image), "%s with %q", c.image, c.patterns)
	}
	for pattern, text := range map[string]string{
		"reg.example/a*/app": `"*"`, "reg.example/a*": `"*"`, "reg.example/*/app": `"*"`, "*": `"*"`, "reg.example/**": `"*"`, "a/*/*": `"*"`,
		"/*": "host", "reg.example/": "couldn't parse", "": "empty", "reg.example/a/app:1": "tag", "reg.example/a/app@" + digest: "digest",
		"reg.example/a/app ": "spaces", " reg.example/*": "spaces",
	} {
		_, err := newRule(NeverVerifyAllowlistedImages, []string{"reg.example/good", pattern})
		assert.ErrorContains(t, err, text, pattern)
		assert.ErrorContains(t, err, `"`+pattern+`" in the allowlist`)
	}
}

func TestOptions(t *testing.T) {
	for about, c := range map[string]struct {
		dir  string
		opts Options
		err  string
	}{
		"the zero value":          {dir: "d"},
		"no directory":            {err: "root directory"},
		"an unknown policy":       {dir: "d", opts: Options{Policy: "Sometimes"}, err: `unknown policy "Sometimes"; use NeverVerify, `},
		"a list that is not used": {dir: "d", opts: Options{Policy: AlwaysVerify, Allowlist: []string{"a"}}, err: "AlwaysVerify has no allowlist; use NeverVerifyAllowlistedImages"},
		"a list with the default": {dir: "d", opts: Options{Allowlist: []string{"a"}}, err: "has no allowlist"},
	} {
		_, err := New(c.dir, c.opts)
		if c.err == "" {
			require.NoError(t, err, about)
		} else {
			assert.ErrorContains(t, err, c.err, about)
		}
	}
}

func TestNameOf(t *testing.T) {
	for image, want := range map[string]string{
		"app": "app", "app:1": "app", "app@" + digest: "app", "app:1@" + digest: "app", "reg.example/app": "reg.example/app",
		"reg.example/a/b/app:latest": "reg.example/a/b/app", "localhost:5000/app:v1": "localhost:5000/app", "reg:5000/o/app:v1": "reg:5000/o/app",
		"docker.io/tag/image:tag": "docker.io/tag/image", "docker.io/tag/tag:tag@" + digest: "docker.io/tag/tag",
		"reg.example/" + digest[7:] + "/o/image@" + digest: "reg.example/" + digest[7:] + "/o/image",
	} {
		got, err := nameOf(image)
		require.NoError(t, err)
		assert.Equal(t, want, got, image)
	}
	for _, image := range []string{"", "reg.example/o/", "reg.example/o/:tag", "reg.example/o/@" + digest, "UPPER"} {
		_, err := nameOf(image)
		assert.Error(t, err, image)
		assert.Equal(t, image, fullName(image))
	}
	for image, want := range map[string]string{
		"app": "docker.io/library/app:latest", "reg.example/app:1": "reg.example/app:1", "app:1@" + digest: "docker.io/library/app@" + digest,
	} {
		assert.Equal(t, want, fullName(image))
	}
}
