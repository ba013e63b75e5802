package csidriver

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// volume is the state of one volume. Values of it are not shared.
type volume struct {
	ID string
	// Name is what the CO has called it. Empty: it was not created by the controller.
	Name string `json:",omitempty"`
	// Capacity is the size in bytes.
	Capacity int64
	// Context is what the CO has to give back in calls to the node.
	Context map[string]string `json:",omitempty"`
	// Ephemeral means that it lives as long as its publication.
	Ephemeral bool `json:",omitempty"`
	// Formatted means that there is a file system in its image.
	Formatted bool `json:",omitempty"`
	// Attached are the nodes that it is attached to, by ID.
	Attached map[string]attachment `json:",omitempty"`
	// Staged is nil unless it is staged here.
	Staged *stage `json:",omitempty"`
	// Targets are the publications here, by path.
	Targets map[string]publication `json:",omitempty"`
}

type attachment struct {
	Access   access
	ReadOnly bool `json:",omitempty"`
}

type stage struct {
	Path   string
	Access access
	// Answered means that a NodeStageVolume has succeeded for the CO, too.
	Answered bool
}

type publication struct {
	Staging  string `json:",omitempty"`
	Access   access
	ReadOnly bool `json:",omitempty"`
}

// access is a capability of a volume, as a value.
type access struct {
	Block bool `json:",omitempty"`
	Mode  csi.VolumeCapability_AccessMode_Mode
	// FileSystem, Flags, which are joined by commas, and Group are those of a mount. Context is the SELinux label,
	// which is not in Flags.
	FileSystem string `json:",omitempty"`
	Flags      string `json:",omitempty"`
	Context    string `json:",omitempty"`
	Group      string `json:",omitempty"`
}

func accessOf(c *csi.VolumeCapability) access {
	a := access{Block: c.GetBlock() != nil, Mode: c.GetAccessMode().GetMode(), FileSystem: c.GetMount().GetFsType(),
		Group: c.GetMount().GetVolumeMountGroup()}
	var flags []string
	for _, flag := range c.GetMount().GetMountFlags() {
		if label, ok := strings.CutPrefix(flag, "context="); ok {
			a.Context = strings.Trim(label, `"`)
		} else {
			flags = append(flags, flag)
		}
	}
	a.Flags = strings.Join(flags, ",")
	return a
}

func (v volume) clone() volume {
	v.Context, v.Attached, v.Targets = maps.Clone(v.Context), maps.Clone(v.Attached), maps.Clone(v.Targets)
	if v.Staged != nil {
		v.Staged = new(*v.Staged)
	}
	return v
}

// state is what is on disk.
type state struct {
	Volumes    map[string]volume
	Violations []string `json:",omitempty"`
}

// store has the state. What was stored is on disk when a method returns.
type store struct {
	path string

	mu     sync.Mutex // guards the following and the file; only the file is used with it
	state  state
	loaded bool // otherwise nothing is written
}

func statePath(dir string) string { return filepath.Join(dir, "state.json") }

// load reads the state, if there is one, and writes it from now on.
func (s *store) load() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.state.Volumes // of AddVolume before Run
	s.state, s.loaded = state{}, true
	if err := s.read(); err != nil {
		return err
	}
	for id, v := range before {
		if _, ok := s.state.Volumes[id]; !ok {
			s.set(v)
		}
	}
	return s.save()
}

// read reads the file, if there is one.
func (s *store) read() error {
	data, err := os.ReadFile(s.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return json.Unmarshal(data, &s.state)
}

// save is called with the lock.
func (s *store) save() error {
	if !s.loaded {
		return nil
	}
	data, err := json.MarshalIndent(s.state, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(s.path+".new", s.path)
}

func (s *store) set(v volume) {
	if s.state.Volumes == nil {
		s.state.Volumes = map[string]volume{}
	}
	s.state.Volumes[v.ID] = v
}

func (s *store) get(id string) (volume, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.state.Volumes[id]
	return v.clone(), ok
}

func (s *store) list() []volume {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []volume
	for _, id := range slices.Sorted(maps.Keys(s.state.Volumes)) {
		all = append(all, s.state.Volumes[id].clone())
	}
	return all
}

func (s *store) put(v volume) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(v.clone())
	return s.save()
}

// answered notes that a NodeStageVolume is answered with success.
func (s *store) answered(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.state.Volumes[id].clone()
	if v.Staged == nil || v.Staged.Answered {
		return nil
	}
	v.Staged.Answered = true
	s.set(v)
	return s.save()
}

func (s *store) remove(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.state.Volumes, id)
	return s.save()
}

func (s *store) violate(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Violations = append(s.state.Violations, text)
	_ = s.save() // it is kept, and written with what is stored next
}

func (s *store) violations() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.state.Violations)
}
