package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/fswatch"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

func manifestOf(name, image string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %q}\nspec: {containers: [{name: c, image: %q}]}\n",
		name, image)
}

func secretOf(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %q}\nstringData: {value: %q}\n", name, value)
}

// valueOf is the value of a secret in the namespace "default", or the error.
func valueOf(t *testing.T, src objects.Source, name string) string {
	t.Helper()
	s, err := src.Secret(t.Context(), "default", name)
	if err != nil {
		return err.Error()
	}
	return string(s.Data["value"])
}

// drive returns a state that the test scans by hand, at a time when no file is young.
func drive(t *testing.T, dir string, opts Options) (s *state, scan func()) {
	s = newState(dir, "n", opts)
	s.store = objects.New()
	return s, func() {
		s.suspectAll() // the clock of the file system is coarse
		s.scan(t.Context(), time.Now().Add(time.Hour))
	}
}

func TestIsManifest(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"a.yaml": true, "a.yml": true, "a.json": true, "a.b.yaml": true,
		"a": false, "a.yaml~": false, ".a.yaml": false, "a.yaml.swp": false, "#a.yaml#": false, "a.txt": false, ".yaml": false,
	} {
		assert.Equal(t, want, IsManifest(name), name)
	}
}

// TestYoungFileIsNotBroken scans at chosen times.
func TestYoungFileIsNotBroken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(t, path, "[")
	written := time.Unix(1000, 0)
	require.NoError(t, os.Chtimes(path, written, written))
	var problems []string
	s := newState(dir,
		"n", Options{Problem: func(_ string, err error) { problems = append(problems, fmt.Sprint(err)) }})
	_, again := s.scan(t.Context(), written.Add(100*time.Millisecond))
	assert.Equal(t, 150*time.Millisecond, again)
	assert.Empty(t, problems)
	_, again = s.scan(t.Context(), written.Add(250*time.Millisecond))
	assert.Zero(t, again)
	assert.Len(t, problems, 1)
}

// TestUnchangedFilesAreNotRead changes a file but not its size, time and inode.
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
	scan := func() []string {
		s.scan(t.Context(), time.Now())
		return []string{s.pods()[0].Spec.Containers[0].Image}
	}
	replace("1")
	assert.Equal(t, []string{"1"}, scan())
	replace("2") // same size, time and inode
	assert.Equal(t, []string{"1"}, scan())
	s.changed(path, fswatch.Write)
	assert.Equal(t, []string{"2"}, scan(), "an event makes it suspect")
}

// TestFileWrittenDuringScanIsYoung: such a file is not broken yet. A file with a time
// stamp in the future is.
func TestFileWrittenDuringScanIsYoung(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	begun := time.Now().Add(-100 * time.Millisecond)
	write(t, filepath.Join(dir, "a.yaml"), "")
	var problems []string
	s := newState(dir,
		"n", Options{Problem: func(path string, _ error) { problems = append(problems, filepath.Base(path)) }})
	_, again := s.scan(t.Context(), begun)
	assert.Equal(t, minAge, again)
	assert.Empty(t, problems)

	ahead := time.Now().Add(time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(dir, "a.yaml"), ahead, ahead))
	s.suspectAll()
	_, again = s.scan(t.Context(), time.Now())
	assert.Zero(t, again)
	assert.Equal(t, []string{"a.yaml"}, problems)
}

func TestAwaitMissingPath(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "manifests")
	var logged []string
	s := newState(dir, "n", Options{Await: true,
		Logger: funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})})
	for range 2 {
		s.scan(t.Context(), time.Now())
		assert.False(t, s.known)
	}
	require.Len(t, logged, 1)
	assert.Contains(t, logged[0], "waiting for it")
	require.NoError(t, os.Mkdir(dir, 0o700))
	s.scan(t.Context(), time.Now())
	assert.True(t, s.known)
	require.NoError(t, os.Remove(dir))
	s.scan(t.Context(), time.Now())
	require.Len(t, logged, 2)
	assert.Contains(t, logged[1], "it holds no pods", "it has existed")
}

func TestMissingPathIsLoggedOnce(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "manifests")
	var logged []string
	s := newState(dir,
		"n", Options{Logger: funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})})
	for range 2 {
		logged = nil
		s.scan(t.Context(), time.Now())
		s.scan(t.Context(), time.Now())
		require.Len(t, logged, 1)
		assert.Contains(t, logged[0], dir)
		assert.Contains(t, logged[0], "does not exist")
		require.NoError(t, os.Mkdir(dir, 0o700))
		s.scan(t.Context(), time.Now())
		require.NoError(t, os.Remove(dir))
	}
}

func TestIgnoredFilesAreLoggedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := filepath.Join(dir, "link.yaml")
	require.NoError(t, os.Symlink(filepath.Join(dir, "target"), link))
	for _, name := range []string{"readme", ".hidden", "a.yaml~"} {
		write(t, filepath.Join(dir, name), "")
	}
	var logged []string
	s := newState(dir,
		"n", Options{Logger: funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})})
	scan := func() []string {
		logged = nil
		s.scan(t.Context(), time.Now())
		return logged
	}
	first := strings.Join(scan(), "\n")
	assert.Contains(t, first, "to a file that does not exist")
	assert.Contains(t, first, "does not end in")
	assert.Len(t, logged, 2)
	assert.Empty(t, scan())
	write(t, filepath.Join(dir, "target"), manifestOf("a", "1"))
	assert.NotContains(t, strings.Join(scan(), "\n"), "to a file that does not exist")
	require.NoError(t, os.Remove(filepath.Join(dir, "target")))
	assert.Contains(t, strings.Join(scan(), "\n"), "to a file that does not exist")
	for i := range 3 { // a program that writes under another name first
		written := filepath.Join(dir, fmt.Sprint("a.yaml.", i))
		write(t, written, "")
		assert.Len(t, scan(), 1)
		require.NoError(t, os.Remove(written))
	}
	scan()
	assert.Len(t, s.ignored, 2, "those that are there")
}

// TestRestoredPodsOfBrokenFile: any restored pod that no other file has may be from a
// broken file, so it goes on until all files have been valid.
func TestRestoredPodsOfBrokenFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path+".new", []byte(content), 0o600))
		past := time.Now().Add(-time.Minute) // it is not being written
		require.NoError(t, os.Chtimes(path+".new", past, past))
		require.NoError(t, os.Rename(path+".new", path))
	}
	manifest := func(name, image string) string {
		return fmt.Sprintf(
			"{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {containers: [{name: c, image: %s}]}}", name,
			image)
	}
	write("a.yaml", manifest("a", "old"))
	write("b.yaml", manifest("b", "old"))
	write("c.yaml", manifest("c", "old"))
	before := newState(dir, "node", Options{})
	before.scan(t.Context(), time.Now())
	require.Len(t, before.pods(), 3)

	write("a.yaml", manifest("a", "new"))
	write("b.yaml", "{")
	require.NoError(t, os.Remove(filepath.Join(dir, "c.yaml")))
	s := newState(dir, "node", Options{})
	s.restored = before.pods()
	scan := func() (names []string) {
		s.suspectAll()
		s.scan(t.Context(), time.Now())
		for _, pod := range s.pods() {
			names = append(names, pod.Name+" "+pod.Spec.Containers[0].Image)
		}
		return names
	}
	assert.Equal(t, []string{"a-node new", "b-node old", "c-node old"}, scan(), "c may have moved to the broken file")
	assert.Same(t, before.pods()[1], s.pods()[1])
	write("d.yaml", manifest("c", "new"))
	assert.Equal(t, []string{"a-node new", "c-node new", "b-node old"}, scan())
	require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
	assert.Equal(t, []string{"c-node new", "b-node old"}, scan(),
		"a pod that a file has had is no restored pod any more")
	write("b.yaml", manifest("b", "new"))
	assert.Equal(t, []string{"b-node new", "c-node new"}, scan())
	write("e.yaml", "{")
	require.NoError(t, os.Remove(filepath.Join(dir, "d.yaml")))
	assert.Equal(t, []string{"b-node new"}, scan(), "from there on every file has been valid")
}

// TestPanicIsAProblemOfItsFile makes the logger panic while one of two manifests is
// parsed. The pod of the other one is delivered, and the panic is reported.
func TestPanicIsAProblemOfItsFile(t *testing.T) {
	dir := t.TempDir()
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: web, image: nginx}]}\n"
	bad := filepath.Join(dir, "bad.yaml")
	require.NoError(t, os.WriteFile(bad, []byte(strings.Replace(pod, "name: web", "name: bad", 1)), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "good.yaml"), []byte(pod), 0o600))
	var logged, reported []string
	log := funcr.NewJSON(func(line string) { logged = append(logged, line) }, funcr.Options{})
	s := newState(dir, "edge-7", Options{Logger: log,
		Problem: func(_ string, err error) { reported = append(reported, err.Error()) }})
	sink := fake.NewSink("edge-7", nil)
	s.sink = panicSink{sink, "bad-edge-7"}
	for range 3 {
		s.scan(t.Context(), time.Now())
	}
	require.Len(t, s.pods(), 1)
	assert.Equal(t, "web-edge-7", s.pods()[0].Name)
	assert.Equal(t, map[string]string{bad: "bug in this program while reading it: panic: oops"}, s.problems)
	assert.Equal(t, []string{s.problems[bad]}, reported, "once while it lasts")
	require.Len(t, sink.Rejected(), 1)
	crash := (*runtime.PanicError)(nil)
	require.ErrorAs(t, sink.Rejected()[0].Err, &crash)
	assert.Contains(t, string(crash.Stack), "scan_test.go")
	assert.Empty(t, logged, "the mux logs it")
}

// panicSink panics with the pod of the name.
type panicSink struct {
	*fake.Sink
	name string
}

func (s panicSink) StaticUID(ctx context.Context, pod podconfig.StaticPod) types.UID {
	if pod.Pod.Name == s.name {
		panic("oops")
	}
	return s.Sink.StaticUID(ctx, pod)
}

// As kubelet, a source uses a manifest with unknown fields and further documents, and warns of these.
func TestAsKubelet(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.yaml")
	var problems []error
	s, scan := drive(t, path, Options{AsKubelet: true, Problem: func(_ string, err error) { problems = append(problems, err) }})
	sink := fake.NewSink("n", nil)
	s.sink = sink
	write(t, path, manifestOf("x", "1")+"unknown: {}\n---\n"+manifestOf("y", "1"))
	scan()
	scan()
	require.Len(t, s.pods(), 1)
	require.Len(t, problems, 1)
	ignored := (*manifest.Warning)(nil)
	require.ErrorAs(t, problems[0], &ignored)
	assert.ErrorContains(t, problems[0], `unknown field "unknown"`)
	assert.ErrorContains(t, problems[0], "only the first document is used, as by kubelet, not Pod y in line")
	require.Len(t, sink.Warned(), 1, "once while it lasts")
	assert.Equal(t, runtime.RefOf(s.pods()[0]), sink.Warned()[0].Pod)
	assert.ErrorContains(t, sink.Warned()[0].Err, "manifest "+path+": ")
	assert.Empty(t, sink.Rejected())

	write(t, path, manifestOf("x", "1")+"spec: [\n")
	scan()
	require.Len(t, problems, 2)
	assert.False(t, errors.As(problems[1], &ignored))
	assert.Len(t, sink.Rejected(), 1)
	write(t, path, manifestOf("x", "1"))
	scan()
	require.Len(t, problems, 3)
	assert.NoError(t, problems[2])
}

// An edit that cannot be parsed is rejected for the pods that the file had.
func TestABrokenEditIsOneOfItsPods(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.yaml")
	s, scan := drive(t, path, Options{})
	sink := fake.NewSink("n", nil)
	s.sink = sink
	write(t, path, manifestOf("x", "1")+"---\n"+manifestOf("y", "1"))
	scan()
	write(t, path, "[")
	scan()
	rejected := sink.Rejected()
	require.Len(t, rejected, 2)
	for i, name := range []string{"x-n", "y-n"} {
		assert.Equal(t, name, rejected[i].Pod.Name)
		assert.ErrorContains(t, rejected[i].Err, "the last valid content stays")
	}
}

func TestObjectsOfFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	problems := map[string]string{}
	s, scan := drive(t, dir, Options{Problem: func(path string, err error) {
		problems[filepath.Base(path)] = fmt.Sprint(err)
	}})
	sink := fake.NewSink("n", nil)
	s.sink = sink

	// The file that had the object first keeps it.
	write(t, b, secretOf("db", "b"))
	scan()
	write(t, a, secretOf("db", "a")+"---\n"+strings.Replace(secretOf("db", ""), "Secret", "ConfigMap", 1))
	scan()
	assert.Contains(t, problems["a.yaml"], `unknown field "stringData"`)
	write(t, a, secretOf("db", "a"))
	scan()
	assert.Equal(t,
		`metadata.name: Duplicate value: "default/db": secret default/db is left out because b.yaml has the same; remove one of them`, problems["a.yaml"])
	rejected := sink.Rejected()
	assert.ErrorContains(t, rejected[len(rejected)-1].Err, "the rest of the file is used")
	assert.Equal(t, "b", valueOf(t, s.store, "db"))
	require.NoError(t, os.Remove(b))
	scan()
	assert.Equal(t, "a", valueOf(t, s.store, "db"))
	assert.Equal(t, "<nil>", problems["a.yaml"])

	// The last valid content stays while the file is broken.
	write(t, a, secretOf("DB", "c"))
	scan()
	assert.Contains(t, problems["a.yaml"], `secret default/DB is invalid: metadata.name: Invalid value: "DB"`)
	assert.Equal(t, "a", valueOf(t, s.store, "db"))
}

func TestImmutableObject(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	var problem error
	s, scan := drive(t, dir, Options{Problem: func(_ string, err error) { problem = err }})
	immutable := secretOf("db", "1") + "immutable: true\n"
	write(t, path, immutable)
	scan()
	write(t, path, "# the same\n"+immutable)
	scan()
	require.NoError(t, problem)
	write(t, path, secretOf("db", "2"))
	scan()
	require.EqualError(t, problem, "secret default/db cannot be changed: ["+
		"immutable: Forbidden: field is immutable when `immutable` is set; remove the object before you add it anew, "+
		"data: Forbidden: field is immutable when `immutable` is set; remove the object before you add it anew]")
	assert.Equal(t, "1", valueOf(t, s.store, "db"))
	require.NoError(t, os.Remove(path))
	scan()
	write(t, path, secretOf("db", "2"))
	scan()
	require.NoError(t, problem)
	assert.Equal(t, "2", valueOf(t, s.store, "db"))
}

func TestModeOfSecretsIsLoggedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	old := time.Now().Add(-2 * time.Hour)
	var logged []string
	s, _ := drive(t, dir,
		Options{Logger: funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})})
	step := func(content string, mode os.FileMode) []string {
		logged = nil
		if was, _ := os.ReadFile(path); content != string(was) {
			write(t, path, content)
			old = old.Add(time.Second)
			require.NoError(t, os.Chtimes(path, old, old))
		}
		require.NoError(t, os.Chmod(path, mode))
		s.scan(t.Context(), time.Now())
		s.scan(t.Context(), time.Now())
		return logged
	}
	assert.Empty(t, step("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", 0o644), "no secret")
	assert.Empty(t, step(secretOf("db", "1"), 0o600))
	warned := step(secretOf("db", "1"), 0o640)
	require.Len(t, warned, 1, "a change of the mode alone")
	assert.Contains(t, warned[0], "users other than its owner")
	assert.Contains(t, warned[0], `"mode"="0640"`)
	assert.Contains(t, warned[0], path)
	assert.Empty(t, step(secretOf("db", "2"), 0o640), "logged once")
	assert.Empty(t, step(secretOf("db", "2"), 0o400))
	assert.Len(t, step(secretOf("db", "2"), 0o604), 1, "and again when it is so again")
}
