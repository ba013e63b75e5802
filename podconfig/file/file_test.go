package file_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/podconfig/file"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// timeout is how long a test waits for what must happen.
const timeout = 30 * time.Second

func manifestOf(name, image string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %q}\nspec: {containers: [{name: c, image: %q}]}\n",
		name, image)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// replace writes a file that is never seen half written, however busy the machine is.
func replace(t *testing.T, path, content string) {
	t.Helper()
	fresh := filepath.Join(t.TempDir(), "fresh")
	write(t, fresh, content)
	require.NoError(t, os.Rename(fresh, path))
}

// rig runs a source and records its deliveries and problems.
type rig struct {
	t        *testing.T
	sets     chan []*v1.Pod
	problems chan string
	last     []*v1.Pod
	stop     func()
}

// start runs a source of the path. If every is 0, scans happen only after events.
func start(t *testing.T, path string, every time.Duration) *rig {
	t.Helper()
	if every == 0 {
		every = time.Hour
	}
	return launch(t, path, file.Options{CheckFrequency: every}, nil)
}

// launch runs a source with the options. A prepare that is not nil changes it before.
func launch(t *testing.T, path string, opts file.Options, prepare func(*file.Source)) *rig {
	t.Helper()
	r := &rig{t: t, sets: make(chan []*v1.Pod, 1000), problems: make(chan string, 1000)}
	opts.Problem = func(path string, err error) {
		r.problems <- fmt.Sprintf("%s: %v", filepath.Base(path), err)
	}
	s := file.New(path, opts)
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
func sink(set func(pods []*v1.Pod)) podconfig.Sink { return fake.NewSink("node", set) }

// expect waits for a delivery of exactly these pods, each as name=image.
func (r *rig) expect(want ...string) {
	r.t.Helper()
	deadline := time.After(timeout)
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
	deadline := time.After(timeout)
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
	write(t, filepath.Join(dir, "a.json"),
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"1"}]}}`)
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

// staticUIDs is a sink that decides UIDs when it is released, or when ctx ends.
type staticUIDs struct {
	podconfig.Sink
	asked   chan podconfig.StaticPod
	release chan struct{}
}

func (s staticUIDs) StaticUID(ctx context.Context, pod podconfig.StaticPod) types.UID {
	s.asked <- pod
	select {
	case <-ctx.Done():
		return "ctx has ended"
	case <-s.release:
		return "decided-" + types.UID(pod.Pod.Name)
	}
}

// The sink decides the UIDs, with the time of the last change. What it returns when the run has ended is not used.
func TestStaticUID(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	write(t, path, manifestOf("a", "1"))
	changed := time.Now().Add(-time.Hour).Truncate(time.Second)
	require.NoError(t, os.Chtimes(path, changed, changed))
	source, sets := file.New(path, file.Options{}), make(chan []*v1.Pod, 10)
	uids := staticUIDs{sink(func(pods []*v1.Pod) { sets <- pods }), make(chan podconfig.StaticPod, 10),
		make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	run := func(ctx context.Context) { done <- source.Run(ctx, uids) }
	go run(ctx)
	asked := <-uids.asked
	assert.True(t, changed.Equal(asked.Modified))
	assert.Len(t, asked.Pod.UID, 32)
	assert.Len(t, asked.Manifest, 64)
	cancel()
	require.NoError(t, <-done)

	close(uids.release)
	ctx, cancel = context.WithCancel(t.Context())
	go run(ctx)
	assert.EqualValues(t, "decided-a-node", (<-sets)[0].UID)
	cancel()
	require.NoError(t, <-done)
	assert.Empty(t, sets)
}

// A file that is deleted and made again within a moment ends its pods, as with kubelet, also if the content is the
// same. Only its own pods are withdrawn, and a file that is replaced by another one is not deleted.
func TestManifestIsPutBack(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(t, path, manifestOf("a", "1"))
	write(t, filepath.Join(dir, "b.yaml"), manifestOf("b", "1"))
	r := start(t, dir, 0)
	r.expect("a=1", "b=1")
	before := r.last
	for range 3 {
		require.NoError(t, os.Remove(path))
		write(t, path, manifestOf("a", "1"))
		require.Equal(t, []string{"b=1"}, describe(<-r.sets))
		r.last = <-r.sets
		require.Equal(t, []string{"a=1", "b=1"}, describe(r.last))
		assert.Equal(t, before[0].UID, r.last[0].UID)
	}
	replace(t, path, manifestOf("a", "1"))
	replace(t, path, manifestOf("a", "2"))
	require.Equal(t, []string{"a=2", "b=1"}, describe(<-r.sets))
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
	r.expect("a=1", "b=2") // the last valid a stays

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

func TestProblemIsReportedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(t, path, "[")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "d.yaml"), 0o700))
	r := start(t, dir, time.Millisecond)
	r.expect()
	r.expectProblem("a.yaml: yaml:")
	// Some more scans, and then one that finds another file.
	replace(t, filepath.Join(dir, "b.yaml"), manifestOf("b", "1"))
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

// A problem with a manifest is in the log, among the events and in the history of its pod, with
// the zero options of the source.
func TestRejectedPodsAreReported(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), manifestOf("x", "1"))
	write(t, filepath.Join(dir, "b.yaml"), manifestOf("x", "2"))
	write(t, filepath.Join(dir, "c.yaml"), manifestOf("Y", "1"))
	write(t, filepath.Join(dir, "d.yaml"), "[")
	records, events, logged := make(chan runtime.Record, 100), make(chan runtime.Event, 100), make(chan string, 100)
	mux, err := podconfig.New(podconfig.Options{
		NodeName: "node", Sources: []podconfig.Source{file.New(dir, file.Options{})},
		Observer: runtime.Observer{Record: func(r runtime.Record) { records <- r },
			Event: func(e runtime.Event) { events <- e }, Logger: funcr.New(func(_, args string) { logged <- args },
				funcr.Options{})},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mux.Run(ctx) }()
	defer func() { cancel(); require.NoError(t, <-done) }()
	got := map[string]runtime.Record{}
	for len(got) < 2 {
		select {
		case r := <-records:
			got[r.Pod.Name] = r
		case <-time.After(timeout):
			t.Fatal(got)
		}
	}
	for name, part := range map[string]string{"x-node": "metadata.name: Duplicate value",
		"Y-node": "metadata.name: Invalid value"} {
		r := got[name]
		assert.Contains(t, r.Message, part)
		assert.NotEmpty(t, r.Pod.UID)
		assert.Equal(t, runtime.Record{
			Pod: r.Pod, Stage: runtime.StageDecided, Kind: runtime.KindReject, Source: "file", Message: r.Message,
		}, r)
		e := <-events
		r = got[e.Pod.Name]
		assert.Equal(t, runtime.Event{Pod: r.Pod, Type: v1.EventTypeWarning, Reason: "FailedValidation",
			Message: r.Message, Logged: true}, e)
	}
	lines := []string{<-logged, <-logged, <-logged}
	slices.Sort(lines)
	assert.Contains(t, lines[0], "Manifest rejected")
	assert.Contains(t, lines[0], "d.yaml: yaml:")
	assert.Contains(t, lines[1], "Pod rejected")
	assert.Contains(t, lines[1], "b.yaml: metadata.name: Duplicate value")
	assert.Contains(t, lines[2], "c.yaml: pod default/Y-node is invalid")
	assert.Contains(t, lines[2], "the file has not been valid yet, its pods do not run")
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

// TestConfigMapVolume replaces a set of files by switching one link, as kubelet writes
// volumes.
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

// TestPeriodicScan changes a file without an event: it is behind a link to another
// directory.
func TestPeriodicScan(t *testing.T) {
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

func TestUnreadablePathDeliversNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "")
	r := start(t, filepath.Join(dir, "file", "below"), 0) // ENOTDIR
	r.expectProblem("manifests cannot be read")
	assert.Empty(t, r.sets)
}

func TestNodeNameIsRequired(t *testing.T) {
	t.Parallel()
	err := file.New("/manifests", file.Options{}).Run(t.Context(), fake.NewSink("", nil))
	require.EqualError(t, err, "file source /manifests: no node name given; set podconfig.Options.NodeName")
}

func TestRunTwice(t *testing.T) {
	t.Parallel()
	s := file.New(t.TempDir(), file.Options{})
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
	require.ErrorIs(t, s.Run(ctx, nil), runtime.ErrAlreadyRunning)
	cancel()
	require.NoError(t, <-done)

	// The next run begins with the pods of the first.
	again := make(chan []*v1.Pod, 1)
	ctx, cancel = context.WithCancel(t.Context())
	go func() { done <- s.Run(ctx, sink(func(pods []*v1.Pod) { again <- pods })) }()
	<-again
	cancel()
	require.NoError(t, <-done)
}

// TestFirstPodsComeAfterFirstProblems: the first delivery is taken for the complete
// list, so it waits until a file is known to be broken and not half written.
func TestFirstPodsComeAfterFirstProblems(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"),
		[]byte(`{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i}]}}`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b.yaml"), []byte("{"), 0o600))
	r := start(t, dir, 0)
	assert.Len(t, <-r.sets, 1)
	assert.Len(t, r.problems, 1, "reported before")
}
