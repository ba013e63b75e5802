package file

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podconfig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

func manifestOf(name, image string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %q}\nspec: {containers: [{name: c, image: %q}]}\n", name, image)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// rig runs a source and keeps what it says.
type rig struct {
	t        *testing.T
	sets     chan []*v1.Pod
	problems chan string
	last     []*v1.Pod
	stop     func()
}

// start runs a source of the path. Without an every, looks happen only when the
// kernel tells of something.
func start(t *testing.T, path string, every time.Duration) *rig {
	t.Helper()
	if every == 0 {
		every = time.Hour
	}
	return launch(t, path, Options{CheckFrequency: every}, nil)
}

// launch runs a source with these options, prepared by the function if it is not nil.
func launch(t *testing.T, path string, opts Options, prepare func(*Source)) *rig {
	t.Helper()
	r := &rig{t: t, sets: make(chan []*v1.Pod, 1000), problems: make(chan string, 1000)}
	opts.Problem = func(path string, err error) {
		r.problems <- fmt.Sprintf("%s: %v", filepath.Base(path), err)
	}
	s := New(path, opts)
	if prepare != nil {
		prepare(s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, sink(func(pods []*v1.Pod) { r.sets <- pods })) }()
	r.stop = func() { cancel(); assert.NoError(t, <-done) }
	t.Cleanup(func() { r.stop() })
	return r
}

// sink returns a sink of the node "node".
func sink(set func(pods []*v1.Pod)) podconfig.Sink { return podconfig.NewSnapshotSink("node", set) }

// expect waits for a set of exactly these pods, each as name=image.
func (r *rig) expect(want ...string) {
	r.t.Helper()
	deadline := time.After(patience)
	var got []string
	for {
		select {
		case pods := <-r.sets:
			r.last = pods
			got = describe(pods)
			if assert.ObjectsAreEqual(want, got) {
				return
			}
		case <-deadline:
			require.Equal(r.t, want, got)
		}
	}
}

func (r *rig) expectProblem(part string) {
	r.t.Helper()
	var got []string
	deadline := time.After(patience)
	for {
		select {
		case p := <-r.problems:
			if strings.Contains(p, part) {
				return
			}
			got = append(got, p)
		case <-deadline:
			require.Contains(r.t, got, part)
		}
	}
}

func describe(pods []*v1.Pod) []string {
	var names []string
	for _, p := range pods {
		names = append(names, strings.TrimSuffix(p.Name, "-node")+"="+p.Spec.Containers[0].Image)
	}
	return names
}

func TestDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "b.yaml"), manifestOf("b", "1"))
	write(t, filepath.Join(dir, "a.json"), `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"1"}]}}`)
	for _, name := range []string{".hidden.yaml", "c.yaml~", "#c.yaml#", "#c.yaml", "c.yaml.swp", "readme"} {
		write(t, filepath.Join(dir, name), manifestOf("no", "1"))
	}
	r := start(t, dir, 0)
	r.expect("a=1", "b=1")
	a := r.last[0]
	assert.Equal(t, "default", a.Namespace)
	assert.EqualValues(t, "node", a.Spec.NodeName)

	write(t, filepath.Join(dir, "b.yaml"), manifestOf("b", "2"))
	r.expect("a=1", "b=2")
	assert.Same(t, a, r.last[0], "an unchanged file is the same pod")

	write(t, filepath.Join(dir, "tmp"), manifestOf("c", "1")+"---\n"+manifestOf("d", "1"))
	require.NoError(t, os.Rename(filepath.Join(dir, "tmp"), filepath.Join(dir, "c.yml")))
	r.expect("a=1", "b=2", "c=1", "d=1")

	require.NoError(t, os.Remove(filepath.Join(dir, "b.yaml")))
	r.expect("a=1", "c=1", "d=1")
	require.NoError(t, os.Rename(filepath.Join(dir, "c.yml"), filepath.Join(dir, "c.off")))
	r.expect("a=1")
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := start(t, dir, 0)
	r.expect()
	var want []string
	for i := range 100 {
		write(t, filepath.Join(dir, fmt.Sprintf("%03d.yaml", i)), manifestOf(fmt.Sprint("p", i), "1"))
		want = append(want, fmt.Sprintf("p%d=1", i))
	}
	r.expect(want...)
}

func TestSingleFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "manifest") // any name will do
	r := start(t, path, 0)
	r.expect()
	write(t, path, manifestOf("a", "1"))
	r.expect("a=1")
	write(t, filepath.Join(dir, "new"), manifestOf("a", "2"))
	require.NoError(t, os.Rename(filepath.Join(dir, "new"), path))
	r.expect("a=2")
	require.NoError(t, os.Remove(path))
	r.expect()
}

func TestBrokenFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(t, path, manifestOf("a", "1"))
	write(t, filepath.Join(dir, "b.yaml"), manifestOf("b", "1"))
	r := start(t, dir, 0)
	r.expect("a=1", "b=1")

	write(t, path, manifestOf("A", "1"))
	r.expectProblem(`a.yaml: pod default/A-node is invalid: metadata.name: Invalid value: "A-node"`)
	write(t, filepath.Join(dir, "b.yaml"), manifestOf("b", "2"))
	r.expect("a=1", "b=2") // the last good a stays

	write(t, path, strings.Replace(manifestOf("a", "1"), "image:", "imagee:", 1))
	r.expectProblem(`a.yaml: unknown field "spec.containers[0].imagee"`)
	write(t, path, "")
	r.expectProblem("a.yaml: no pod in it")
	require.NoError(t, os.Truncate(path, 11<<20))
	r.expectProblem("a.yaml: manifest is larger than 10 MiB")
	write(t, path, manifestOf("a", "3"))
	r.expect("a=3", "b=2")
	r.expectProblem("a.yaml: <nil>")

	write(t, path, "[")
	r.expectProblem("a.yaml: yaml:")
	require.NoError(t, os.Remove(path))
	r.expect("b=2")
	r.expectProblem("a.yaml: <nil>")
}

func TestProblemIsToldOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(t, path, "[")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "d.yaml"), 0o700))
	r := start(t, dir, time.Millisecond)
	r.expect()
	r.expectProblem("a.yaml: yaml:")
	// Some more looks, and then one that sees another file.
	write(t, filepath.Join(dir, "b.yaml"), manifestOf("b", "1"))
	r.expect("b=1")
	r.stop()
	r.stop = func() {}
	close(r.problems)
	var rest []string
	for p := range r.problems {
		rest = append(rest, p)
	}
	for _, p := range rest {
		assert.Contains(t, p, "d.yaml: not a regular file")
	}
	assert.LessOrEqual(t, len(rest), 1)
}

func TestConflictBetweenFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "b.yaml"), manifestOf("x", "1"))
	r := start(t, dir, 0)
	r.expect("x=1")
	write(t, filepath.Join(dir, "a.yaml"), manifestOf("x", "2"))
	r.expectProblem(`a.yaml: metadata.name: Duplicate value: "default/x-node": pod default/x-node`)
	require.NoError(t, os.Remove(filepath.Join(dir, "b.yaml")))
	r.expect("x=2")
	r.expectProblem("a.yaml: <nil>")
}

func TestDirectoryComesAndGoes(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "manifests")
	r := start(t, dir, 0)
	r.expect()
	for i := range 3 {
		image := fmt.Sprint(i)
		require.NoError(t, os.Mkdir(dir, 0o700))
		write(t, filepath.Join(dir, "a.yaml"), manifestOf("a", image))
		r.expect("a=" + image)
		require.NoError(t, os.RemoveAll(dir))
		r.expect()
	}
	// Another directory in its place.
	other := dir + ".new"
	require.NoError(t, os.Mkdir(other, 0o700))
	write(t, filepath.Join(other, "a.yaml"), manifestOf("a", "x"))
	require.NoError(t, os.Rename(other, dir))
	r.expect("a=x")
	write(t, filepath.Join(dir, "a.yaml"), manifestOf("a", "y"))
	r.expect("a=y")
}

// TestConfigMapVolume replaces a whole set of files by turning one link, as
// kubelet writes volumes.
func TestConfigMapVolume(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := func(version string) {
		data := filepath.Join(dir, "..v"+version)
		require.NoError(t, os.Mkdir(data, 0o700))
		write(t, filepath.Join(data, "a.yaml"), manifestOf("a", version))
		require.NoError(t, os.Symlink("..v"+version, filepath.Join(dir, "..data_tmp")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	link("1")
	require.NoError(t, os.Symlink("..data/a.yaml", filepath.Join(dir, "a.yaml")))
	r := start(t, dir, 0)
	r.expect("a=1")
	link("2")
	r.expect("a=2")
	require.NoError(t, os.Remove(filepath.Join(dir, "..data")))
	r.expect()
}

// TestPeriodicLook changes a file that the kernel does not tell of: one behind a
// link that leads elsewhere.
func TestPeriodicLook(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "x")
	write(t, elsewhere, manifestOf("a", "1"))
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(dir, "a.yaml")))
	r := start(t, dir, 5*time.Millisecond)
	r.expect("a=1")
	write(t, elsewhere, manifestOf("a", "2"))
	r.expect("a=2")
}

func TestRelativePath(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	require.NoError(t, os.Mkdir("m", 0o700))
	r := start(t, "m/", 0)
	r.expect()
	write(t, filepath.Join(dir, "m", "a.yaml"), manifestOf("a", "1"))
	r.expect("a=1")
}

func TestUnreadablePathSaysNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "")
	r := start(t, filepath.Join(dir, "file", "below"), 0) // ENOTDIR
	r.expectProblem("manifests cannot be read")
	assert.Empty(t, r.sets)
}

func TestNodeNameIsRequired(t *testing.T) {
	t.Parallel()
	err := New("/manifests", Options{}).Run(t.Context(), podconfig.NewSnapshotSink("", nil))
	require.EqualError(t, err, "file source /manifests: no node name given; set podconfig.Options.NodeName")
}

func TestRunTwice(t *testing.T) {
	t.Parallel()
	s := New(t.TempDir(), Options{})
	assert.Equal(t, "file", s.Name())
	ctx, cancel := context.WithCancel(t.Context())
	seen, done := make(chan struct{}), make(chan error)
	var once atomic.Bool
	go func() {
		done <- s.Run(ctx, sink(func([]*v1.Pod) {
			if once.CompareAndSwap(false, true) {
				close(seen)
			}
		}))
	}()
	<-seen
	require.ErrorIs(t, s.Run(ctx, nil), ErrRunning)
	cancel()
	require.NoError(t, <-done)

	// What a run has learnt serves the next one.
	again := make(chan []*v1.Pod, 1)
	ctx, cancel = context.WithCancel(t.Context())
	go func() { done <- s.Run(ctx, sink(func(pods []*v1.Pod) { again <- pods })) }()
	<-again
	cancel()
	require.NoError(t, <-done)
}

func TestIsManifest(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"a.yaml": true, "a.yml": true, "a.json": true, "a.b.yaml": true,
		"a": false, "a.yaml~": false, ".a.yaml": false, "a.yaml.swp": false, "#a.yaml#": false, "a.txt": false, ".yaml": false,
	} {
		assert.Equal(t, want, isManifest(name), name)
	}
}

// TestYoungFileIsNotCalledBroken drives the looks by hand.
func TestYoungFileIsNotCalledBroken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(t, path, "[")
	written := time.Unix(1000, 0)
	require.NoError(t, os.Chtimes(path, written, written))
	var problems []string
	s := newState(dir, "n", Options{Problem: func(_ string, err error) { problems = append(problems, fmt.Sprint(err)) }})
	_, again := s.look(t.Context(), written.Add(100*time.Millisecond))
	assert.Equal(t, 150*time.Millisecond, again)
	assert.Empty(t, problems)
	_, again = s.look(t.Context(), written.Add(250*time.Millisecond))
	assert.Zero(t, again)
	assert.Len(t, problems, 1)
}

// TestUnchangedFilesAreNotRead proves it by changing one behind the back.
func TestUnchangedFilesAreNotRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	old := time.Now().Add(-time.Hour)
	replace := func(image string) {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		_, err = f.WriteString(manifestOf("a", image))
		require.NoError(t, err)
		require.NoError(t, f.Close())
		require.NoError(t, os.Chtimes(path, old, old))
	}
	s := newState(dir, "n", Options{})
	look := func() []string {
		s.look(t.Context(), time.Now())
		return []string{s.pods()[0].Spec.Containers[0].Image}
	}
	replace("1")
	assert.Equal(t, []string{"1"}, look())
	replace("2") // same size, time and inode
	assert.Equal(t, []string{"1"}, look())
	s.suspect(path)
	assert.Equal(t, []string{"2"}, look(), "an event makes it suspect")
}

// TestFileOfThisMomentIsYoung: one that is written while the look is under way is
// not called broken either, one whose clock is ahead is.
func TestFileOfThisMomentIsYoung(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	begun := time.Now().Add(-100 * time.Millisecond)
	write(t, filepath.Join(dir, "a.yaml"), "")
	var problems []string
	s := newState(dir, "n", Options{Problem: func(path string, _ error) { problems = append(problems, filepath.Base(path)) }})
	_, again := s.look(t.Context(), begun)
	assert.Equal(t, ripe, again)
	assert.Empty(t, problems)

	ahead := time.Now().Add(time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(dir, "a.yaml"), ahead, ahead))
	s.suspectAll()
	_, again = s.look(t.Context(), time.Now())
	assert.Zero(t, again)
	assert.Equal(t, []string{"a.yaml"}, problems)
}

func TestMissingPathIsWaitedFor(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "manifests")
	var said []string
	s := newState(dir, "n", Options{Await: true, Logger: funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{})})
	for range 2 {
		s.look(t.Context(), time.Now())
		assert.False(t, s.known)
	}
	require.Len(t, said, 1)
	assert.Contains(t, said[0], "it is waited for")
	require.NoError(t, os.Mkdir(dir, 0o700))
	s.look(t.Context(), time.Now())
	assert.True(t, s.known)
	require.NoError(t, os.Remove(dir))
	s.look(t.Context(), time.Now())
	require.Len(t, said, 2)
	assert.Contains(t, said[1], "it holds no pods", "it has existed")
}

func TestMissingPathIsSaidOnce(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "manifests")
	var said []string
	s := newState(dir, "n", Options{Logger: funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{})})
	for range 2 {
		said = nil
		s.look(t.Context(), time.Now())
		s.look(t.Context(), time.Now())
		require.Len(t, said, 1)
		assert.Contains(t, said[0], dir)
		assert.Contains(t, said[0], "does not exist")
		require.NoError(t, os.Mkdir(dir, 0o700))
		s.look(t.Context(), time.Now())
		require.NoError(t, os.Remove(dir))
	}
}

func TestWhatIsNotReadIsSaidOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := filepath.Join(dir, "link.yaml")
	require.NoError(t, os.Symlink(filepath.Join(dir, "target"), link))
	for _, name := range []string{"readme", ".hidden", "a.yaml~"} {
		write(t, filepath.Join(dir, name), "")
	}
	var said []string
	s := newState(dir, "n", Options{Logger: funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{})})
	look := func() []string {
		said = nil
		s.look(t.Context(), time.Now())
		return said
	}
	first := strings.Join(look(), "\n")
	assert.Contains(t, first, "leads nowhere")
	assert.Contains(t, first, "does not end in")
	assert.Len(t, said, 2)
	assert.Empty(t, look())
	write(t, filepath.Join(dir, "target"), manifestOf("a", "1"))
	assert.NotContains(t, strings.Join(look(), "\n"), "leads nowhere")
	require.NoError(t, os.Remove(filepath.Join(dir, "target")))
	assert.Contains(t, strings.Join(look(), "\n"), "leads nowhere")
}

// The first pods are taken for all there is, so they wait until it is clear whether a
// file is broken or half written.
func TestTheFirstPodsComeWithTheFirstProblems(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(`{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i}]}}`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b.yaml"), []byte("{"), 0o600))
	r := start(t, dir, 0)
	assert.Len(t, <-r.sets, 1)
	assert.Len(t, r.problems, 1, "told before")
}

// A source that starts with a broken file cannot tell which of the restored pods are of it:
// those that no other file has go on until all files were good.
func TestRestoredPodsOfABrokenFileGoOn(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path+".new", []byte(content), 0o600))
		past := time.Now().Add(-time.Minute) // it is not being written
		require.NoError(t, os.Chtimes(path+".new", past, past))
		require.NoError(t, os.Rename(path+".new", path))
	}
	manifest := func(name, image string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {containers: [{name: c, image: %s}]}}", name, image)
	}
	write("a.yaml", manifest("a", "old"))
	write("b.yaml", manifest("b", "old"))
	write("c.yaml", manifest("c", "old"))
	before := newState(dir, "node", Options{})
	before.look(t.Context(), time.Now())
	require.Len(t, before.pods(), 3)

	write("a.yaml", manifest("a", "new"))
	write("b.yaml", "{")
	require.NoError(t, os.Remove(filepath.Join(dir, "c.yaml")))
	s := newState(dir, "node", Options{})
	s.restored = before.pods()
	look := func() (names []string) {
		s.suspectAll()
		s.look(t.Context(), time.Now())
		for _, pod := range s.pods() {
			names = append(names, pod.Name+" "+pod.Spec.Containers[0].Image)
		}
		return names
	}
	assert.Equal(t, []string{"a-node new", "b-node old", "c-node old"}, look(), "c may have moved to the broken file")
	assert.Same(t, before.pods()[1], s.pods()[1])
	write("d.yaml", manifest("c", "new"))
	assert.Equal(t, []string{"a-node new", "c-node new", "b-node old"}, look())
	require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
	assert.Equal(t, []string{"c-node new", "b-node old"}, look(), "what a file has had is its own")
	write("b.yaml", manifest("b", "new"))
	assert.Equal(t, []string{"b-node new", "c-node new"}, look())
	write("e.yaml", "{")
	require.NoError(t, os.Remove(filepath.Join(dir, "d.yaml")))
	assert.Equal(t, []string{"b-node new"}, look(), "from there on all is known")
}
