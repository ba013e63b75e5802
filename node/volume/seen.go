package volume

import (
	"hash/maphash"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"
)

// settled is the age from which on the times of files are relied on: a later change has
// another time for certain. Some kernels count time in ticks of 10 ms.
const settled = 50 * time.Millisecond

// seen has a hash for each volume whose files were compared with their payload and were equal. With
// it the next sync of an idle pod reads no files. The hash is that of the payload, of the group, and
// of the inode, the mode, the size and the time of change of each file. A volume without a hash, or
// with another one now, is compared again. A hash that is missing costs only time.
type seen struct {
	seed maphash.Seed
	// settled is the constant of that name, except in tests.
	settled time.Duration

	mu sync.Mutex
	// states are hashes, by the hash of the volume's directory.
	states map[uint64]uint64
}

func newSeen() *seen {
	return &seen{seed: maphash.MakeSeed(), settled: settled, states: map[uint64]uint64{}}
}

// same reports whether the volume is as it was when it was noted with this payload and group.
func (s *seen) same(dir string, p payload, gid int, nested []string) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	noted, ok := s.states[maphash.String(s.seed, dir)]
	s.mu.Unlock()
	if !ok {
		return false
	}
	now, _, ok := s.state(dir, p, gid, nested)
	return ok && now == noted
}

// note remembers a volume that has the files of the payload, in this group. before is what state has returned before
// they were compared.
func (s *seen) note(dir string, p payload, gid int, nested []string, before uint64) {
	if s == nil {
		return
	}
	state, changed, ok := s.state(dir, p, gid, nested)
	if !ok || state != before || time.Since(changed) < s.settled {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states[maphash.String(s.seed, dir)] = state
}

// forget forgets a volume.
func (s *seen) forget(dir string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.states, maphash.String(s.seed, dir))
}

// state returns a hash of the payload, of its group and of the files, and when one of these changed last. It
// fails if a file is missing.
func (s *seen) state(dir string, p payload, gid int, nested []string) (state uint64, changed time.Time, ok bool) {
	if s == nil {
		return 0, changed, false
	}
	target, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil || !isDataDir(target) {
		return 0, changed, false
	}
	var h maphash.Hash
	h.SetSeed(s.seed)
	ok = true
	// The order of files does not matter: each has a hash of its own.
	looked := directories{} // files have many of the directories above them in common
	add := func(name string, f *file) {
		stamp, at, err := stampOf(name)
		if err != nil {
			ok = false
			return
		}
		if at.After(changed) {
			changed = at
		}
		h.Reset()
		maphash.WriteComparable(&h, name)
		maphash.WriteComparable(&h, stamp)
		if f != nil {
			owner := int64(-1)
			if f.owner != nil {
				owner = *f.owner
			}
			maphash.WriteComparable(&h, f.mode)
			maphash.WriteComparable(&h, owner)
			maphash.WriteComparable(&h, gid)
			_, _ = h.Write(f.data) // it returns no error
		}
		state += h.Sum64()
	}
	add(dir, nil)
	data := filepath.Join(dir, target)
	add(data, nil)
	for name, f := range p {
		add(filepath.Join(data, name), &f)
		for above := path.Dir(name); above != "."; above = path.Dir(above) {
			if _, ok := looked[above]; ok {
				break
			}
			looked[above] = struct{}{}
			add(filepath.Join(data, above), nil)
		}
	}
	for _, name := range nested {
		add(filepath.Join(dir, name), nil)
	}
	return state, changed, ok
}
