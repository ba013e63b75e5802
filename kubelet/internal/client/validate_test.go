package client

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
)

const goodPod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: a, image: i}]}\n"

// validateIn runs validate with an input, and returns what it prints, with the directory as DIR.
func validateIn(t *testing.T, dir, in string, args ...string) (out, errOut string, err error) {
	t.Helper()
	var o, e strings.Builder
	err = Run(t.Context(), append([]string{"validate"}, args...), Env{In: strings.NewReader(in), Out: &o, Err: &e})
	return strings.ReplaceAll(o.String(), dir, "DIR"), strings.ReplaceAll(e.String(), dir, "DIR"), err
}

// A manifest whose read does not end is one error.
func TestValidateAFileThatHangs(t *testing.T) {
	if f, err := os.Open("/proc/kmsg"); err != nil {
		t.Skip("it needs a file of which no read ends: ", err)
	} else {
		require.NoError(t, f.Close())
	}
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "a.yaml"), goodPod)
	require.NoError(t, os.Symlink("/proc/kmsg", filepath.Join(dir, "b.yaml")))
	out, _, err := validateIn(t, dir, "", dir)
	require.EqualError(t, err, "manifests that cannot be used: 1 of 2")
	assert.Equal(t, "DIR/a.yaml: pod default/web\nDIR/b.yaml: error: no answer from the file system within 5s\n", out)
}

func TestValidate(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	writeFile(t, at("a.yaml"), goodPod+"---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {k: v}\n")
	out, errOut, err := validateIn(t, dir, "", dir)
	require.NoError(t, err)
	assert.Equal(t, "DIR/a.yaml: pod default/web, secret default/s\n", out)
	assert.Equal(t, "DIR/a.yaml: in the place of a kubelet: only the first document is used, as by kubelet, not Secret s "+
		"in line 5\n", errOut)

	out, errOut, err = validateIn(t, dir, strings.Replace(goodPod, "image: i", "image: i, livenessProbe: {grpc: {port: 1, mode: TLS}}",
		1), "-")
	require.NoError(t, err)
	assert.Equal(t, "-: pod default/web\n", out)
	assert.Equal(t, "-: pod default/web: spec.containers[0].livenessProbe.grpc.mode has no effect without the feature "+
		"gate GRPCContainerProbeTLS\n", errOut)

	writeFile(t, at("b.yml"), "kind: [\x1b")
	writeFile(t, at("c.json"),
		`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "C_"}, "spec": {"containers": [{"name": "a", "imag": "i"}]}}`)
	writeFile(t, at("d.yaml"), "apiVersion: v1\nkind: Pod\nmetadata: {name: D_}\nspec: {containers: [{name: a}]}\n")
	writeFile(t, at("e.yaml"), goodPod)
	writeFile(t, at("f.yaml"), "")
	writeFile(t, at("notes.txt"), "")
	writeFile(t, at(".hidden.yaml"), "[")
	require.NoError(t, os.Mkdir(at("sub"), 0o700))
	require.NoError(t, os.Mkdir(at("dir.yaml"), 0o700))
	out, errOut, err = validateIn(t, dir, "", dir, at("absent.yaml"))
	require.EqualError(t, err, "manifests that cannot be used: 7 of 8")
	lines := strings.Split(out, "\n")
	for i, want := range []string{
		"DIR/a.yaml: pod default/web, secret default/s", "DIR/b.yml: error: yaml: ", "DIR/c.json: error: ",
		"DIR/d.yaml: 2 errors", "  pod default/D_: metadata.name: ",
		"  pod default/D_: spec.containers[0].image: Required value", "DIR/dir.yaml: error: not a regular file",
		"DIR/e.yaml: error: pod default/web is in DIR/a.yaml too; the agent uses one of them",
	} {
		require.Greater(t, len(lines), i)
		assert.True(t, strings.HasPrefix(lines[i], want), "%q, want %q", lines[i], want)
	}
	assert.Contains(t, out, `spec.containers[0].imag`)
	assert.Contains(t, out, "DIR/absent.yaml: error: no such file or directory\n")
	assert.NotContains(t, out, "hidden")
	assert.NotContains(t, out, "\x1b")
	assert.Contains(t, errOut, "DIR/notes.txt is ignored: its name does not end in .yaml, .yml or .json.\n")
	assert.Contains(t, errOut, "DIR/sub is ignored")

	out, _, err = validateIn(t, dir, "", "-o", "json", at("a.yaml"), at("b.yml"))
	require.Error(t, err)
	var list items[validated]
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	require.Len(t, list.Items, 2)
	assert.Equal(t, validated{Path: "DIR/a.yaml", Pods: []string{"default/web"}, Objects: []string{"secret default/s"}},
		list.Items[0])
	assert.Len(t, list.Items[1].Errors, 1)

	// The input, without an agent. A file that is given by its name may have any name.
	out, _, err = validateIn(t, dir, goodPod, "-")
	require.NoError(t, err)
	assert.Equal(t, "-: pod default/web\n", out)
	_, _, err = validateIn(t, dir, goodPod+"---\nkind: x\n", "-")
	require.Error(t, err)
	writeFile(t, at("any"), goodPod)
	_, _, err = validateIn(t, dir, "", at("any"))
	require.NoError(t, err)

	empty := t.TempDir()
	_, errOut, err = validateIn(t, empty, "", empty)
	require.NoError(t, err)
	assert.Equal(t, "DIR holds no manifests.\n", errOut)
	_, _, err = validateIn(t, dir, "")
	usage := (*config.UsageError)(nil)
	require.ErrorAs(t, err, &usage)
}
