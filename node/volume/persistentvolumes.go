package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// persistentVolumes are the volumes of a node that a [PersistentPlugin] sets up: a lock for each, and the pods that use
// it. Both are in memory; the users are read from the directories of the pods when they are needed first.
type persistentVolumes struct {
	plugins []PersistentPlugin
	before  steps
	event   runtime.EventFunc
	seLinux seLinux
	// locks has a lock for each key.
	locks flow.Locks

	mu sync.Mutex
	// users are the users of each volume that is on disk, by its key. A user is the state directory of a place, which
	// is on disk as long as it is a user: its end would not be found otherwise.
	users map[string]map[string]struct{}
	// unread are the directories of pods whose volumes could not be read, nil before the first attempt.
	unread map[string]error
	// keys are those of the places that this agent has set up, ready the volumes that it has published, both by the
	// state directory of the place.
	keys  map[string]string
	ready map[string]Published
	// labels are the SELinux labels that the pods request, by the state directory. A volume that cannot be mounted with
	// one is not in it.
	labels map[string]string
	// expandAt is when the claim of a published volume is read again.
	expandAt map[string]time.Time
}

func newPersistentVolumes(plugins []PersistentPlugin, before steps, event runtime.EventFunc,
	labels seLinux) *persistentVolumes {
	return &persistentVolumes{plugins: plugins, before: before, event: event, seLinux: labels,
		users: map[string]map[string]struct{}{}, keys: map[string]string{}, ready: map[string]Published{},
		labels:   map[string]string{},
		expandAt: map[string]time.Time{}}
}

// pluginOf returns the plugin of a persistent volume, or nil.
func (s *persistentVolumes) pluginOf(pv *v1.PersistentVolume) PersistentPlugin {
	if s == nil {
		return nil
	}
	for _, p := range s.plugins {
		if p.Supports(pv) {
			return p
		}
	}
	return nil
}

// keyOf distinguishes the keys of plugins.
func keyOf(p PersistentPlugin, key string) string { return p.Name() + " " + key }

// lockOf returns the name of the lock for calls of the plugin.
func lockOf(p PersistentPlugin, key string, place Place) string {
	if p.PerPod() {
		return place.StateDir
	}
	return key
}

// setUp makes the volume ready for the pod. name is that of the volume in the spec of the pod.
func (s *persistentVolumes) setUp(ctx context.Context, p PersistentPlugin, req PersistentRequest,
	name string) (ready runtime.Volume, err error) {
	key := keyOf(p, p.Key(req.Volume))
	unlock, err := s.locks.Lock(ctx, lockOf(p, key, req.Place))
	if err != nil {
		return ready, &mountError{step: "SetUp", volume: req.Volume.Name, block: req.Block,
			err: fmt.Errorf("another pod sets up the volume: %w", err)}
	}
	defer unlock()
	measureAs(ctx, p, p.Key(req.Volume))
	s.mu.Lock()
	published, found := s.ready[req.StateDir]
	s.mu.Unlock()
	if found && !published.Republish {
		return published.Volume, nil
	}
	if err := s.use(ctx, p, key, name, &req); err != nil {
		return ready, err
	}
	before, err := s.begin(p, req.Place)
	if err != nil {
		return ready, &mountError{step: "SetUp", volume: req.Volume.Name, block: req.Block, err: err}
	}
	req.Shared = accessOf(req.Pod).gid >= 0 && s.shared(key, req)
	limited := ctx
	if found { // the pod has the volume, and waits for nothing that is new in it
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, againTimeout)
		defer cancel()
	}
	published, err = s.publish(limited, p, req)
	if err == nil {
		s.complete(req.Place)
		s.mu.Lock()
		s.ready[req.StateDir] = published
		s.mu.Unlock()
		return published.Volume, nil
	}
	if !before {
		return ready, err
	}
	earlier, findErr := p.Published(req.Place)
	if findErr != nil || earlier == nil {
		return ready, err
	}
	if req.ReadOnly {
		earlier.ReadOnly, earlier.Relabel = true, false
	}
	return earlier.Volume, &OutdatedError{err}
}

// againTimeout is the limit for a volume that is published again.
const againTimeout = 30 * time.Second

// Files in the state directory of a volume. The first is there from before its first publication until that has
// succeeded, the second from then on: what is mounted before that may lack the files of the driver, or belong to
// another group.
const (
	begunFile     = "begun"
	publishedFile = "published"
)

// begin reports whether the volume was published for the pod before, also by a kubelet, and notes otherwise that it is
// going to be.
func (s *persistentVolumes) begin(p PersistentPlugin, place Place) (published bool, err error) {
	notes, err := os.ReadDir(place.StateDir)
	if err != nil {
		return false, err
	}
	for _, note := range notes {
		if name := note.Name(); name == begunFile || name == publishedFile {
			return name == publishedFile, nil
		}
	}
	name := begunFile
	for _, path := range []string{place.Dir, place.Device} {
		there, err := entriesOf(filepath.Dir(path), func(e fs.DirEntry) bool { return e.Name() == filepath.Base(path) })
		if err != nil {
			return false, err
		}
		if len(there) == 0 {
			continue
		}
		if earlier, err := p.Published(place); err != nil {
			return false, err
		} else if earlier != nil {
			name = publishedFile
		}
	}
	if err := s.before.step("note that the volume is going to be published"); err != nil {
		return false, err
	}
	return name == publishedFile, os.WriteFile(filepath.Join(place.StateDir, name), nil, 0o600)
}

// complete notes that the volume is published. If that fails, its containers wait when it cannot be published again.
func (s *persistentVolumes) complete(place Place) {
	if s.before.step("note that the volume is published") == nil {
		_ = os.Rename(filepath.Join(place.StateDir, begunFile), filepath.Join(place.StateDir, publishedFile))
	}
}

// shared reports whether another pod may have the volume.
func (s *persistentVolumes) shared(key string, req PersistentRequest) bool {
	users, err := s.usersOf(filepath.Dir(req.podDir()), key)
	return err != nil || slices.ContainsFunc(users,
		func(user string) bool { return placeOfState(user).podDir() != req.podDir() })
}

// use makes the pod a user of the volume, if it may be one, and sets the SELinux label of the request.
func (s *persistentVolumes) use(ctx context.Context, p PersistentPlugin, key, name string,
	req *PersistentRequest) error {
	pod := req.podDir()
	if p.PerPod() { // no other lock is held for the key
		unlock, err := s.locks.Lock(ctx, key)
		if err != nil {
			return &mountError{step: "SetUp", volume: req.Volume.Name, block: req.Block, err: err}
		}
		defer unlock()
	}
	if modes := req.Volume.Spec.AccessModes; len(modes) == 1 && modes[0] == v1.ReadWriteOncePod {
		// As in kubelet, but the other pod counts until its volume is unstaged.
		users, err := s.usersOf(filepath.Dir(pod), key)
		if err != nil {
			return &mountError{step: "SetUp", volume: req.Volume.Name, block: req.Block, err: err}
		}
		for _, user := range users {
			if other := (Place{StateDir: user}).podDir(); other != pod {
				return &mountError{step: "SetUp", volume: req.Volume.Name, block: req.Block,
					err: fmt.Errorf("volume uses the ReadWriteOncePod access mode and is already in use by another pod, that "+
						"with the UID %s", filepath.Base(other))}
			}
		}
	}
	label, labelled, err := s.label(ctx, p, key, name, req)
	if err != nil {
		return &mountError{step: "SetUp", volume: req.Volume.Name, block: req.Block, err: err}
	}
	if err := s.before.step("make the directories of the volume"); err != nil {
		return err
	}
	parent := filepath.Dir(req.Dir)
	if req.Block {
		parent = filepath.Dir(req.Device)
	}
	err = os.MkdirAll(req.StateDir, 0o750) // first, so that the volume is taken down after a crash
	if err == nil {
		s.mu.Lock()
		s.add(key, req.StateDir)
		s.keys[req.StateDir] = key
		if labelled {
			s.labels[req.StateDir] = label
		}
		s.mu.Unlock()
		err = os.MkdirAll(parent, 0o750)
	}
	if err != nil {
		return &mountError{step: "SetUp", volume: req.Volume.Name, block: req.Block, err: err}
	}
	return nil
}

// add adds a user of a volume. mu is locked.
func (s *persistentVolumes) add(key, stateDir string) {
	if s.users[key] == nil {
		s.users[key] = map[string]struct{}{}
	}
	s.users[key][stateDir] = struct{}{}
}

// remove removes a user of a volume.
func (s *persistentVolumes) remove(key, stateDir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ready, stateDir)
	delete(s.expandAt, stateDir)
	delete(s.keys, stateDir)
	delete(s.labels, stateDir)
	delete(s.users[key], stateDir)
	if len(s.users[key]) == 0 {
		delete(s.users, key)
	}
}

// publish attaches, stages and publishes the volume.
func (s *persistentVolumes) publish(ctx context.Context, p PersistentPlugin,
	req PersistentRequest) (published Published, err error) {
	for _, step := range []struct {
		// name is kubelet's.
		name string
		do   func() error
	}{
		{"WaitForAttach", func() error { return p.Attach(ctx, req) }},
		{"MountDevice", func() error {
			if p.PerPod() {
				return nil
			}
			return p.Stage(ctx, req)
		}},
		{"SetUp", func() (err error) {
			published, err = p.Publish(ctx, req)
			if err == nil && published.FSGroup && !req.Block {
				err = s.give(ctx, req, published.HostPath)
			}
			return err
		}},
	} {
		if err := s.before.step("%s", step.name); err != nil {
			return published, err
		}
		if err := runtime.Recover(step.do); err != nil {
			if unprocessed := (*processError)(nil); errors.As(err, &unprocessed) {
				return published, err
			}
			return published, &mountError{step: step.name, volume: req.Volume.Name, err: err, block: req.Block}
		}
	}
	return published, nil
}

// give gives the files to the fsGroup of the pod. Unlike those of a local volume, they are also given if another pod
// uses the volume, as in kubelet.
func (s *persistentVolumes) give(ctx context.Context, req PersistentRequest, dir string) error {
	a := accessOf(req.Pod)
	if a.gid < 0 || req.ReadOnly {
		return nil
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 { // as in kubelet, what a driver links is not given
		return nil
	}
	if keepsFiles(req.Pod, info, a.gid) {
		return nil
	}
	if err := giveFiles(ctx, req.Pod, dir, a.gid, s.event); err != nil {
		name := req.Volume.Name
		if csi := req.Volume.Spec.CSI; csi != nil {
			name = csi.VolumeHandle
		}
		return fmt.Errorf("applyFSGroup failed for vol %s: %w", name, err)
	}
	return nil
}

// tearDown takes down the volume at the place. It is called until it succeeds, and then the manager removes the traces
// of the volume in the directory of the pod.
func (s *persistentVolumes) tearDown(ctx context.Context, p PersistentPlugin, req TearDownRequest) error {
	found, err := p.Find(req.Place)
	if err != nil {
		return err
	}
	key, recorded := keyOf(p, found), found != ""
	if !recorded { // it was not staged, but the plugin may have begun to wait for it
		s.mu.Lock()
		key = s.keys[req.StateDir]
		s.mu.Unlock()
		if key == "" {
			return nil
		}
		found = strings.TrimPrefix(key, keyOf(p, ""))
	}
	measureAs(ctx, p, found)
	unlock, err := s.locks.Lock(ctx, lockOf(p, key, req.Place))
	if err != nil {
		return fmt.Errorf("another pod sets up the volume: %w", err)
	}
	defer unlock()
	s.mu.Lock()
	delete(s.ready, req.StateDir)
	s.mu.Unlock()
	if err := s.before.step("unpublish"); err != nil {
		return err
	}
	last := UnpublishRequest{Pod: req.Pod, Key: found, Place: req.Place}
	if err := p.Unpublish(ctx, last); err != nil {
		return fmt.Errorf("UnmountVolume.TearDown failed: %w", err)
	}
	if err := req.Unmount(); err != nil {
		return err
	}
	if p.PerPod() {
		s.remove(key, req.StateDir)
		return nil
	}
	if err := s.unstage(ctx, p, key, recorded, last); err != nil {
		return fmt.Errorf("%w: %w", errUnstage, err)
	}
	s.remove(key, req.StateDir)
	return nil
}

// errUnstage means that a volume could not be unstaged. Nothing is published for the pod any more. The text is
// kubelet's.
var errUnstage = errors.New("UnmountDevice failed")

// unstage unstages the volume, unless another pod uses it. recorded means that the volume may be staged.
func (s *persistentVolumes) unstage(ctx context.Context, p PersistentPlugin, key string, recorded bool,
	last UnpublishRequest) error {
	users, err := s.usersOf(filepath.Dir(last.podDir()), key)
	if err != nil {
		return err
	}
	for _, user := range users {
		// A pod that only waits for the volume does not keep it staged: after a restart nothing would show that it is
		// to unstage the volume.
		other := placeOfState(user)
		if other == last.Place {
			continue
		}
		used := !recorded
		if recorded {
			key, err := p.Find(other)
			if err != nil {
				return fmt.Errorf("whether the pod with the UID %s uses the volume: %w", other.PodUID(), err)
			}
			used = key != ""
		}
		if used {
			return nil
		}
	}
	if err := s.before.step("unstage"); err != nil {
		return err
	}
	return p.Unstage(ctx, last)
}

// usersOf returns the users of a volume among the pods of the directory. It fails while volumes of any pod cannot be
// read: such a pod may be a user.
func (s *persistentVolumes) usersOf(podsDir, key string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unread == nil || len(s.unread) > 0 {
		if err := s.readUsers(podsDir); err != nil {
			return nil, fmt.Errorf("finding the pods that use the volume: %w", err)
		}
	}
	var users []string
	for user := range s.users[key] {
		users = append(users, user)
	}
	return users, nil
}

// readUsers reads the users of all volumes from the directories of pods, or from those that could not be read before.
func (s *persistentVolumes) readUsers(podsDir string) error {
	first := s.unread == nil
	if first {
		entries, err := os.ReadDir(podsDir)
		if err != nil {
			return err
		}
		s.unread = map[string]error{}
		for _, e := range entries {
			if e.IsDir() {
				s.unread[filepath.Join(podsDir, e.Name())] = nil
			}
		}
	}
	var errs []error
	for dir := range s.unread {
		err := s.readPod(dir)
		if err == nil {
			delete(s.unread, dir)
			continue
		}
		s.unread[dir] = err
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (s *persistentVolumes) readPod(dir string) error {
	found, err := findVolumes(dir)
	if err != nil {
		return err
	}
	for _, v := range found {
		i := slices.IndexFunc(s.plugins, func(p PersistentPlugin) bool { return p.Name() == v.plugin })
		if i < 0 {
			continue
		}
		key, err := s.plugins[i].Find(v.Place)
		if err != nil {
			return fmt.Errorf("volume %s of the pod with the UID %s: %w", v.name, filepath.Base(dir), err)
		}
		if key == "" {
			continue
		}
		s.add(keyOf(s.plugins[i], key), v.StateDir)
	}
	return nil
}

// ofPlugin is the [Plugin] for the volumes of a [PersistentPlugin]: for those in the specs of pods, and for the end of
// all of them.
type ofPlugin struct {
	PersistentPlugin
	volumes *persistentVolumes
}

var _ Plugin = ofPlugin{}

// Supports implements [Plugin].
func (p ofPlugin) Supports(v *v1.Volume) bool {
	return !(Claim{}).Supports(v) && p.PersistentPlugin.Inline(&v1.Pod{}, v) != nil
}

// SetUp implements [Plugin].
func (p ofPlugin) SetUp(ctx context.Context, req SetUpRequest) (runtime.Volume, error) {
	pv := p.Inline(req.Pod, req.Volume)
	if pv == nil {
		return runtime.Volume{}, unsupported(req.Volume.Name, typeOf(req.Volume))
	}
	return p.volumes.setUp(ctx, p.PersistentPlugin, PersistentRequest{Pod: req.Pod, Volume: pv, Inline: true,
		ReadOnly: pv.Spec.CSI != nil && pv.Spec.CSI.ReadOnly, Place: req.Place}, req.Volume.Name)
}

// TearDown implements [Plugin].
func (p ofPlugin) TearDown(ctx context.Context, req TearDownRequest) error {
	return p.volumes.tearDown(ctx, p.PersistentPlugin, req)
}
