package text_test

import (
	_ "crypto/sha512" // as in every program with TLS; the reference parser supports only what is linked
	"strings"
	"testing"

	"github.com/distribution/reference"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/text"
)

var sum = strings.Repeat("0123456789abcdef", 4)

var images = []string{
	"", "busybox", "busybox:1.36", "busybox:latest", "busybox@sha256:" + sum, "busybox:1@sha256:" + sum, "a/b",
	"a/b/c:x", "docker.io/busybox",
	"index.docker.io/busybox", "docker.io/a/b", "localhost/x", "localhost:5000/x:y", "example.com/x",
	"example.com:80/x/y:z", "127.0.0.1:5000/x",
	"[::1]:5000/x", "[::1]/x", "[::g]/x", "[]/x", "[::1/x", "::1/x", "Example.com/x", "EXAMPLE/x", "EXAMPLE/X",
	"Busybox", "a/B", "a_b.c/x", "A_b.c/x",
	"a..b/x", "-a.b/x", "a-.b/x", "a.b:/x", "a.b:x/y", "a.b/", "/", "/x", "x/", "x//y", "x:", "x:-a", "x:.a", "x:_a",
	"x:a/b", "x@", "x@sha256:", "x@sha256:abc",
	"x@sha256:" + sum[:40], "x@sha256:" + strings.ToUpper(sum), "x@SHA256:" + sum, "x@md5:" + sum[:32],
	"x:1@MD5:" + sum[:32], "x@sha512:" + sum + sum,
	"x@sha384:" + sum + sum[:32], "x@a.b+c:" + sum, "x@a..b:" + sum, "x@1a:" + sum, "x@a.:" + sum, "x:1@Sha256:" + sum,
	"x@sha256:" + sum + "@sha256:" + sum, sum, sum + ":x",
	"a.b", "a__b", "a___b", "a---b", "a._b", ".a", "a.", "a-", "_a", "x y", "x\n", "é", "É/x",
	"x:é", strings.Repeat("a", 247), strings.Repeat("a", 248),
	"b/" + strings.Repeat("a", 253), "a_b.c/" + strings.Repeat("a", 250), "a_b.c/" + strings.Repeat("a", 249),
	"x:" + strings.Repeat("a", 128), "x:" + strings.Repeat("a", 129), "x:a:b", "host:5000", "host:x/y",
}

// check compares Parse with the parser of other container tools.
func check(t *testing.T, image string) {
	t.Helper()
	want, wantErr := reference.ParseNormalizedNamed(image)
	got, err := text.ParseImageRef(image)
	if wantErr != nil {
		require.EqualError(t, err, wantErr.Error(), "%q", image)
		return
	}
	require.NoError(t, err, "%q", image)
	require.Equal(t, want.Name(), got.Repository, "%q", image)
	tag, digest := "", ""
	if tagged, ok := want.(reference.Tagged); ok {
		tag = tagged.Tag()
	}
	if digested, ok := want.(reference.Digested); ok {
		digest = digested.Digest().String()
	}
	require.Equal(t, [2]string{tag, digest}, [2]string{got.Tag, got.Digest}, "%q", image)
}

func TestParseImageRef(t *testing.T) {
	for _, image := range images {
		check(t, image)
	}
}

func FuzzParseImageRef(f *testing.F) {
	for _, image := range images {
		f.Add(image)
	}
	f.Fuzz(check)
}
