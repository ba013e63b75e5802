package agent_test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// The start of a pod makes the files that its containers need, and no other: each of them costs a
// start, and its removal an end, as much as a call.
func TestFilesOfAStart(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, root, fake.New(fake.Options{}))
		defer n.stop(t)
		n.source.Set(makePod("db")) // the first pod makes the directory of all
		n.after(time.Minute)
		before := filesBelow(t, root)
		pod := makePod("web")
		pod.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
		n.source.Set(makePod("db"), pod)
		n.after(time.Minute)
		made := slices.DeleteFunc(filesBelow(t, root), func(path string) bool { return slices.Contains(before, path) })
		dir, logs := "pods/"+string(pod.UID), "logs/default_web_"+string(pod.UID)
		assert.Equal(t, []string{logs, logs + "/main", dir, dir + "/etc-hosts", dir + "/termination-log.main.*"}, made)

		n.source.Set(makePod("db"))
		n.after(time.Minute)
		assert.Equal(t, before, filesBelow(t, root), "nothing stays")
	})
}

// filesBelow returns the paths of all files and directories below a directory, sorted, with "*" for
// what is random in them.
func filesBelow(t *testing.T, dir string) (paths []string) {
	t.Helper()
	random := regexp.MustCompile(`[0-9a-f]{8}$`)
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		paths = append(paths, random.ReplaceAllString(filepath.ToSlash(rel), "*"))
		return err
	}))
	slices.Sort(paths)
	return paths
}
