package manifest_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// TestUIDsAreKubelets compares with testdata/uids.txt: the UIDs that kubelet derives for the pods of testdata/uids on a
// node node-1, if that directory is its staticPodPath, and the hashes of their containers. TestStaticPodUIDs in test/e2e
// compares that file with kubelet's own code.
func TestUIDsAreKubelets(t *testing.T) {
	t.Parallel()
	golden, err := os.ReadFile("testdata/uids.txt")
	require.NoError(t, err)
	seen, versions := map[string]bool{}, map[string]bool{}
	for lines := bufio.NewScanner(bytes.NewReader(golden)); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		fields := strings.Fields(lines.Text())
		version, path, want := fields[0], fields[1], fields[2]
		seen[path], versions[version] = true, true
		data, err := os.ReadFile(filepath.Join("testdata", path))
		require.NoError(t, err)
		pods, err := manifest.Load(data, manifest.Options{NodeName: "node-1", Origin: path, KubeletVersion: version})
		require.NoError(t, err, path)
		assert.Equal(t, want, string(pods[0].UID), "%s %s", version, path)
		var hashes []string
		for _, c := range podspec.Containers(&pods[0].Spec) {
			hashes = append(hashes, fmt.Sprintf("%s=%x", c.Name, podspec.ContainerHash(c)))
		}
		assert.ElementsMatch(t, fields[3:], hashes, "%s %s", version, path)
	}
	files, err := filepath.Glob("testdata/uids/*")
	require.NoError(t, err)
	assert.Len(t, seen, len(files))
	assert.Equal(t, map[string]bool{"1.35": true, "1.36": true, "1.37": true}, versions)
}

func TestKubeletVersion(t *testing.T) {
	t.Parallel()
	uid := func(version string) string {
		pod := &v1.Pod{}
		pod.Name = "web"
		require.NoError(t, manifest.Normalize(pod, manifest.Options{NodeName: "n", KubeletVersion: version}))
		return string(pod.UID)
	}
	uids := map[string]bool{uid("1.35"): true, uid("1.36"): true, uid("1.37"): true}
	assert.Len(t, uids, 3)
	for like, versions := range map[string][]string{
		"1.35": {"v1.35.2", "1.34", "v1.9.0"},
		"1.36": {"v1.36.3", "v1.36.3+k3s1", "1.36+", "v1.36.0-rc.1"},
		"1.37": {"", "v1.37.2", "1.38", "v2.0.0", "latest"},
	} {
		for _, version := range versions {
			assert.Equal(t, uid(like), uid(version), version)
		}
	}
}
