package translate

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func TestEnvFileValue(t *testing.T) {
	for _, tt := range []struct{ name, text, want, err string }{
		{"value", "A='one'\nK='two'\n", "two", ""},
		{"no line break at the end", "K='two'", "two", ""},
		{"blanks, comments, carriage returns", "# K='no'\r\n\r\n \t K='yes' # why\r\n", "yes", ""},
		{"a value of several lines", "A='1\nB=2'\nK='x\n# y\n\nz'\n", "x\n# y\n\nz", ""},
		{"the first one", "K='one'\nK='two'", "one", ""},
		{"any name", "A'B='x'\n=\n", "", "line 2: empty variable name"},
		{"a name with a quote", "A'B='x'\nK='y'", "y", ""},
		{"no key", "A='1'", "", ""},
		{"empty file", "", "", ""},
		{"empty value", "K=''", "", ""},
		{"blank after =", "A= 'x'\nK= 'y'\n", "", ""},
		{"no =", "A\n", "", "line 1: missing '='"},
		{"blank before =", "\nK ='x'\n", "", "line 2: whitespace before '=' is not allowed"},
		{"no quotes", "K=x\n", "", "line 1: value must be enclosed in single quotes"},
		{"nothing after =", "K=\n", "", "line 1: value must be enclosed in single quotes"},
		{"not closed at all", "A='1'\nK='x\n\n", "", "line 2: unclosed single quote"},
		{"after the quote", "K='x'y\n", "", "line 1: unexpected content after closing quote"},
		{"errors behind the key do not matter", "K='x'\nbroken", "x", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			values, err := parseEnvFile(tt.text)
			got, defined := values["K"]
			assert.Equal(t, tt.want, got)
			if defined && err != nil {
				err = nil // what follows does not matter
			}
			if tt.err == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, "invalid environment variable format at "+tt.err)
			}
		})
	}
}

func TestVariablesFromFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		path := filepath.Join(dir, "volume", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	write("sub/a.env", "A='one'\nEMPTY=''\n")
	write("broken.env", "A=secret\n")
	write("large.env", "A='"+strings.Repeat("x", maxEnvFile)+"'")
	require.NoError(t, os.Symlink("sub/a.env", filepath.Join(dir, "volume", "link.env")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "host.env"), []byte("A='host'"), 0o600))
	for link, target := range map[string]string{"out.env": "../host.env", "root.env": filepath.Join(dir, "host.env")} {
		require.NoError(t, os.Symlink(target, filepath.Join(dir, "volume", link)))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "volume", "dir"), 0o755))
	for _, tt := range []struct {
		path, key string
		optional  bool
		want      string // "-" if it is not set
		err       string
	}{
		{"sub/a.env", "A", false, "one", ""},
		{"/sub/a.env", "A", false, "one", ""},
		{"link.env", "A", true, "one", ""},
		{"sub/a.env", "B", true, "-", ""},
		{"sub/a.env", "B", false, "", `environment variable key "B" not found in file "sub/a.env"`},
		{"sub/a.env", "EMPTY", true, "-", ""},
		{"none.env", "A", true, "-", ""},
		{"none.env", "A", false, "", `env file "none.env" in volume "v" does not exist`},
		{"broken.env", "A", true, "", `couldn't parse env file "broken.env" in volume "v": invalid environment variable format at line 1: value must be enclosed in single quotes`},
		{"large.env", "A", true, "", `couldn't read env file "large.env" in volume "v"`},
		{"out.env", "A", true, "", `couldn't read env file "out.env" in volume "v"`},
		{"root.env", "A", true, "", `couldn't read env file "root.env" in volume "v"`},
		{"dir", "A", true, "", `couldn't read env file "dir" in volume "v"`},
	} {
		in := sample(func(c *Container) {
			c.Volumes = map[string]runtime.Volume{"v": {HostPath: filepath.Join(dir, "volume")}}
			c.Spec.Env = []v1.EnvVar{{Name: "X", ValueFrom: &v1.EnvVarSource{
				FileKeyRef: &v1.FileKeySelector{VolumeName: "v", Path: tt.path, Key: tt.key, Optional: &tt.optional}}}}
		})
		env, err := containerEnv(t.Context(), in)
		if tt.err != "" {
			assert.EqualError(t, err, tt.err)
			continue
		}
		require.NoError(t, err, tt)
		got, set := env.get("X")
		if !set {
			got = "-"
		}
		assert.Equal(t, tt.want, got, tt)
	}
}

// A container writes a large file, and the spec has thousands of variables from it.
func TestVariablesFromFilesAreBounded(t *testing.T) {
	dir := t.TempDir()
	large := "SMALL='x'\nLARGE='" + strings.Repeat("x", maxEnvFile-100) + "'"
	for i := range 20 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), []byte(large), 0o600))
	}
	variables := func(n int, key string, path func(i int) string) error {
		in := sample(func(c *Container) {
			c.Volumes = map[string]runtime.Volume{"v": {HostPath: dir}}
			for i := range n {
				c.Spec.Env = append(c.Spec.Env, v1.EnvVar{Name: "X" + strconv.Itoa(i), ValueFrom: &v1.EnvVarSource{
					FileKeyRef: &v1.FileKeySelector{VolumeName: "v", Path: path(i), Key: key}}})
			}
		})
		_, err := containerEnv(t.Context(), in)
		return err
	}
	took := testenv.CPUTime(t, func() {
		assert.NoError(t, variables(50_000, "SMALL", func(int) string { return "0" }))
		assert.ErrorIs(t, variables(50_000, "LARGE", func(int) string { return "0" }), podspec.ErrTooLong)
		assert.ErrorIs(t, variables(20, "SMALL", strconv.Itoa), podspec.ErrTooLong)
	})
	assert.Less(t, took, 20*time.Second, "each file is read once")
}
