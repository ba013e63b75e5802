package file

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// state is what a source knows of its files. One goroutine owns it; while it visits
// files, others read from it, and each writes to the one file that it visits.
type state struct {
	path string
	node string
	opts Options
	// store is given the secrets and config maps; nil if none are read.
	store *objects.Store
	// onlyObjects says that there are to be no pods among them.
	onlyObjects bool

	// known says that the path could be looked at.
	known bool
	// files by path.
	files map[string]*manifestFile
	// suspects are paths that an event was about: they are read even if they look
	// unchanged.
	suspects map[string]bool
	// union is that of the pods, objects that of the secrets and config maps.
	union   union[*v1.Pod]
	objects union[metav1.Object]
	// restored are pods of an earlier life of the agent that may be of a file which was not
	// good in this one yet.
	restored []*v1.Pod
	// problems that last, by what they are about.
	problems map[string]string
	// ignored are the names that were already said not to be read, "" for the path
	// itself.
	ignored map[string]bool
}

// manifestFile is a file and what became of it.
type manifestFile struct {
	// info is the file as last read. trusted says that an unchanged info means
	// unchanged content: the file was not written to about when it was read.
	info    os.FileInfo
	trusted bool
	// sum is that of the content that was parsed last, if any was.
	sum    [sha256.Size]byte
	parsed bool
	// pods and objects are those of the last content that was good, if any was.
	good    bool
	pods    []*v1.Pod
	objects []metav1.Object
	// exposed says that others than the owner can get at secrets in it.
	exposed bool
	// err is what is wrong with that content, nil if it is good.
	err error
}

func newState(path, node string, opts Options) *state {
	return &state{
		path: path, node: node, opts: opts,
		union: newPodUnion(), objects: newObjectUnion(),
		files: map[string]*manifestFile{}, suspects: map[string]bool{},
		problems: map[string]string{}, ignored: map[string]bool{},
	}
}

// suspect has the file read at the next look.
func (s *state) suspect(path string) { s.suspects[filepath.Clean(path)] = true }

// suspectAll has every file read at the next look.
func (s *state) suspectAll() {
	for path := range s.files {
		s.suspects[path] = true
	}
}

// pods returns the pods of all files, in the order of the file names.
// Restored ones that may be of a broken file come last.
func (s *state) pods() []*v1.Pod {
	if len(s.restored) == 0 {
		return s.union.items
	}
	return slices.Concat(s.union.items, s.restored)
}

// keepRestored leaves of the restored pods those that are to go on, and returns whether there
// were more. One that a file has had in this life is no business of others any more.
func (s *state) keepRestored() (changed bool) {
	before := len(s.restored)
	if unknown := func(m *manifestFile) bool { return !m.good }; slices.ContainsFunc(slices.Collect(maps.Values(s.files)), unknown) {
		s.restored = slices.DeleteFunc(slices.Clone(s.restored), s.union.has)
	} else {
		s.restored = nil
	}
	changed = len(s.restored) != before
	if len(s.restored) > 0 && (changed || !s.known) {
		names := make([]string, len(s.restored))
		for i, pod := range s.restored {
			names[i] = runtime.RefOf(pod).String()
		}
		s.opts.Logger.Info("Restored pods go on, as they may be of a file that is broken; mend it or take it away to have the say about them", "path", s.path, "pods", names)
	}
	return changed
}

// look reads what changed, and gives the objects to the store. It returns whether
// the pods differ from before and, if not 0, when to look again.
func (s *state) look(ctx context.Context, now time.Time) (changed bool, again time.Duration) {
	infos, err := s.list()
	if errors.Is(err, errAwaited) {
		return false, 0
	}
	if s.report("path", s.path, err); err != nil {
		return false, 0
	}
	for path := range s.files {
		if _, there := infos[path]; !there {
			delete(s.files, path)
			s.report(path, path, nil)
		}
	}
	for path := range infos {
		if m := s.files[path]; m == nil {
			s.files[path] = &manifestFile{}
		} else if m.trusted && !s.suspects[path] && unchanged(m.info, infos[path]) {
			delete(infos, path)
		}
	}
	paths := slices.Sorted(maps.Keys(infos))
	errs := s.visit(ctx, paths)
	if ctx.Err() != nil {
		return false, 0
	}
	for i, path := range paths {
		later := s.settle(path, errs[i], now)
		if later > 0 && (again == 0 || later < again) {
			again = later
		}
	}
	clear(s.suspects)
	if s.store != nil {
		if s.objects.update(s.files) || !s.known {
			s.store.Set(s.objects.items...)
		}
		s.reportConflicts("conflict of objects ", s.objects.conflicts)
	}
	changed = s.union.update(s.files)
	changed = s.keepRestored() || changed
	s.known = true
	s.reportConflicts("conflict of pods ", s.union.conflicts)
	return changed, again
}

// reportConflicts reports those that there are under their prefix, and the end of
// those that there were.
func (s *state) reportConflicts(prefix string, conflicts map[string]error) {
	for path, err := range conflicts {
		s.report(prefix+path, path, err)
	}
	for key := range s.problems {
		if path, ok := strings.CutPrefix(key, prefix); ok && conflicts[path] == nil {
			s.report(key, path, nil)
		}
	}
}

// errAwaited says that the path is not there yet.
var errAwaited = errors.New("the path is waited for")

// list returns the manifest files that are there. A path that does not exist has
// none, unless it is waited for.
func (s *state) list() (map[string]os.FileInfo, error) {
	infos := map[string]os.FileInfo{}
	info, err := os.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if s.opts.Await && !s.known {
			s.say("", "Path of the manifests does not exist: it is waited for, and what it held before stays")
			return nil, errAwaited
		}
		if s.onlyObjects {
			s.say("", "Path of the secrets and config maps does not exist: it holds none")
		} else {
			s.say("", "Path of the manifests does not exist: it holds no pods, and those that it held are stopped")
		}
		return infos, nil
	case err != nil:
		return nil, fmt.Errorf("manifests cannot be read, what they held stays as it was: %w", err)
	}
	delete(s.ignored, "")
	if !info.IsDir() {
		infos[s.path] = info
		return infos, nil
	}
	entries, err := os.ReadDir(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return infos, nil
	}
	if err != nil {
		return nil, fmt.Errorf("manifest directory cannot be read, what it held stays as it was: %w", err)
	}
	for _, e := range entries {
		if !isManifest(e.Name()) {
			s.ignore(e.Name())
			continue
		}
		path := filepath.Join(s.path, e.Name())
		// A link that leads nowhere, or a file that is gone since, is not there.
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			if e.Type()&fs.ModeSymlink != 0 {
				s.say(e.Name(), "File is not read: it is a symbolic link that leads nowhere")
			}
			continue
		}
		delete(s.ignored, e.Name())
		infos[path] = info // nil where it cannot be told
	}
	return infos, nil
}

// isManifest reports whether a file of that name in a directory is read: it ends
// in .yaml, .yml or .json and is neither hidden nor an editor's.
func isManifest(name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") {
		return false
	}
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	default:
		return false
	}
}

// ignore says once that a file is not read, where its author may expect it is.
func (s *state) ignore(name string) {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") || strings.HasSuffix(name, "~") {
		return
	}
	s.say(name, "File is not read: its name does not end in .yaml, .yml or .json")
}

// say says once why a file of the directory is not read, or with "" the path itself.
func (s *state) say(name, why string) {
	if !s.ignored[name] {
		s.ignored[name] = true
		s.opts.Logger.Info(why, "file", filepath.Join(s.path, name))
	}
}

// visit reads files anew, side by side, and returns what reading each came to.
func (s *state) visit(ctx context.Context, paths []string) []error {
	errs := make([]error, len(paths))
	var g errgroup.Group
	g.SetLimit(goruntime.GOMAXPROCS(0))
	for i, path := range paths {
		if ctx.Err() != nil {
			break
		}
		m := s.files[path]
		g.Go(func() error {
			errs[i] = m.reread(s, path)
			return nil
		})
	}
	_ = g.Wait() // the errors are in errs
	return errs
}

// reread brings what is known of one file up to date. An error, or a panic, which is one
// too, leaves all as it was. It only reads from the state.
func (m *manifestFile) reread(s *state, path string) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{value: v, stack: debug.Stack()}
		}
	}()
	data, info, err := read(path)
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(data); !m.parsed || sum != m.sum {
		m.parse(s, path, data)
		m.sum, m.parsed = sum, true
	}
	m.info, m.trusted = info, false // until settle has judged its age
	return nil
}

// settle draws the conclusions from a visit that came to err. A result above 0 is when
// to come back.
func (s *state) settle(path string, err error, now time.Time) time.Duration {
	m := s.files[path]
	if errors.Is(err, fs.ErrNotExist) {
		delete(s.files, path)
		s.report(path, path, nil)
		return 0
	}
	if err != nil {
		m.trusted = false
		s.report(path, path, err)
		return 0
	}
	// A time stamp is as coarse as the clock of the kernel: what was written just
	// now may be written once more and look the same. What was written since the look
	// began is as young as can be; what is from further in the future has no age.
	age := now.Sub(m.info.ModTime())
	if age < 0 && time.Until(m.info.ModTime()) <= 0 {
		age = 0
	}
	m.trusted = age < 0 || age > ripe
	s.checkMode(path, m)
	if m.err != nil && age >= 0 && age < ripe {
		return ripe - age // perhaps it is being written
	}
	s.report(path, path, m.err)
	return 0
}

// parse replaces the pods by those of the content, if that is good.
func (m *manifestFile) parse(s *state, path string, data []byte) {
	opts := manifest.Options{
		NodeName: s.node, Source: manifest.SourceFile, Origin: path,
		Kinds: s.kinds(),
		Allow: s.opts.Allow,
	}
	if s.opts.Lenient {
		opts.Warn = func(err error) {
			s.opts.Logger.Info("Manifest has fields that are not understood", "file", path, "problem", err.Error())
		}
	}
	pods, found, err := manifest.LoadAll(data, opts)
	if err == nil {
		err = mayReplace(m.objects, found)
	}
	m.err = err
	if err == nil {
		m.pods, m.objects, m.good = pods, found, true
	}
}

// kinds are those that the files may hold.
func (s *state) kinds() []string {
	kinds := []string{manifest.PodKind, objects.SecretKind, objects.ConfigMapKind}
	switch {
	case s.store == nil:
		return kinds[:1]
	case s.onlyObjects:
		return kinds[1:]
	default:
		return kinds
	}
}

func unchanged(a, b os.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && a.Mode() == b.Mode()
}

// read returns the content of a regular file and the file as it was opened.
func read(path string) ([]byte, os.FileInfo, error) {
	// Opening a named pipe would wait for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("not a regular file but of mode %s", info.Mode())
	}
	// One byte more than is allowed shows that there is too much.
	buf := bytes.NewBuffer(make([]byte, 0, min(info.Size(), manifest.MaxSize)+bytes.MinRead))
	_, err = buf.ReadFrom(io.LimitReader(f, manifest.MaxSize+1))
	return buf.Bytes(), info, err
}

// panicError is a manifest at which the program panicked. The stack is no part of its
// text, which is the same each time.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string {
	return fmt.Sprintf("reading it panicked, which is a bug of this program: %v", e.value)
}

// report notes what is wrong with something, or with nil that nothing is, and
// tells of it if that is news.
func (s *state) report(key, path string, err error) {
	last, had := s.problems[key]
	switch {
	case err == nil && !had, err != nil && had && last == err.Error():
		return
	case err == nil:
		delete(s.problems, key)
		s.opts.Logger.Info("Problem with manifests is gone", "path", path)
	default:
		s.problems[key] = err.Error()
		log := s.opts.Logger
		if crash := (*panicError)(nil); errors.As(err, &crash) {
			log = log.WithValues("stack", string(crash.stack))
		}
		m := s.files[path]
		switch unknown := key == path && m != nil && !m.good; {
		case unknown && len(s.restored) > 0:
			log.Error(err, "Problem with manifests; no good version of the file is known, restored pods that no other file has go on meanwhile", "path", path)
		case unknown:
			log.Error(err, "Problem with manifests; no good version of the file is known, its pods do not run", "path", path)
		default:
			log.Error(err, "Problem with manifests; what was good last stays", "path", path)
		}
	}
	if s.opts.Problem != nil {
		s.opts.Problem(path, err)
	}
}
