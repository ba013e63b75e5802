package checkpoint

import (
	"cmp"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// errLeft means that records that could not be written before wait for their back-off.
var errLeft = errors.New("some records are written later")

// flush writes and removes the pending records, with all also those whose back-off has not
// passed. Those that fail stay pending.
func (s *Dir) flush(all bool) error {
	var left error
	s.mu.Lock()
	if s.unreferenced {
		s.dropObjects()
	}
	work := s.pending
	s.pending = map[file]any{}
	for f, failure := range s.failed {
		if c, is := work[f]; is && !all && time.Now().Before(failure.retry) {
			s.pending[f], left = c, errLeft
			delete(work, f)
		}
	}
	s.mu.Unlock()
	var ends, removals, writes []file
	for f, c := range work {
		switch {
		case c == nil:
			removals = append(removals, f)
		case f.end:
			ends = append(ends, f)
		default:
			writes = append(writes, f)
		}
	}
	// The end of a pod is recorded before the record of the pod is removed. The other
	// removals come first. They free space, and no two pods of one full name have records at
	// the same time.
	errs := slices.Concat(s.writeAll(ends, work), s.writeAll(removals, work), s.writeAll(writes, work))
	if len(errs) > 3 { // on a full disk all are the same
		errs = append(errs[:3], fmt.Errorf("and %d more", len(errs)-3))
	}
	return cmp.Or(errors.Join(errs...), left)
}

// maxWriters is how many records are written in parallel. The file system then syncs
// many of them with one wait for the disk.
const maxWriters = 16

// writeAll writes or removes the files, and returns the errors of those that failed.
// These stay pending.
func (s *Dir) writeAll(files []file, work map[file]any) (failed []error) {
	backoff := flow.Backoff{Min: time.Second, Max: time.Minute}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	for _, in := range []folder{s.pods, s.objects, s.endings, s.states} {
		of := slices.DeleteFunc(slices.Clone(files), func(f file) bool { return s.folderOf(f) != in })
		if len(of) == 0 {
			continue
		}
		sums, errs := make([][sha256.Size]byte, len(of)), make([]error, len(of))
		err := in.make()
		if err == nil {
			var writers errgroup.Group
			writers.SetLimit(maxWriters)
			for i, f := range of {
				writers.Go(func() error {
					sums[i], errs[i] = s.write(f, work[f])
					return nil
				})
			}
			_ = writers.Wait()
			err = in.sync()
		}
		s.mu.Lock()
		for i, f := range of {
			switch errs[i] = cmp.Or(errs[i], err); {
			case errors.Is(errs[i], errTooLarge): // also the next time
				s.log.Error(errs[i], "A checkpoint is not written; in a reboot, the change is lost",
					"of", nameOf(f, work[f]))
				delete(s.failed, f)
				continue
			case errs[i] != nil:
				failed = append(failed, fmt.Errorf("checkpoint of %s: %w", nameOf(f, work[f]), errs[i]))
				delete(s.onDisk, f) // unknown: it may be there but not synced
				if _, newer := s.pending[f]; !newer {
					s.pending[f] = work[f]
					times := s.failed[f].times + 1
					s.failed[f] = failure{times, time.Now().Add(backoff.After(times))}
				}
				continue
			case work[f] == nil:
				delete(s.onDisk, f)
			default:
				s.onDisk[f] = sums[i]
			}
			if _, newer := s.pending[f]; !newer {
				delete(s.failed, f)
			}
		}
		s.mu.Unlock()
	}
	return failed
}

func (s *Dir) folderOf(f file) folder {
	switch {
	case f.object:
		return s.objects
	case f.end:
		return s.endings
	case f.state:
		return s.states
	}
	return s.pods
}

// nameOf returns the subject of a record for messages.
func nameOf(f file, content any) string {
	if f.state {
		return "state " + f.name
	}
	switch c := content.(type) {
	case *v1.Pod:
		return "pod " + runtime.RefOf(c).String()
	case runtime.PodRef:
		return "the end of pod " + c.String()
	case objectRecord:
		return objects.RefOf(c.object()).String()
	default:
		return f.name + ", which is to be removed"
	}
}

// write writes or removes one record, and returns the checksum of its content.
func (s *Dir) write(f file, c any) (sum [sha256.Size]byte, err error) {
	in := s.folderOf(f)
	if c == nil {
		return sum, in.remove(f.name)
	}
	data, err := json.Marshal(c)
	if err != nil {
		return sum, err
	}
	sum = sha256.Sum256(data)
	s.mu.Lock()
	before, there := s.onDisk[f]
	s.mu.Unlock()
	if there && before == sum {
		return sum, nil
	}
	var key cipher.AEAD
	if f.object || f.state {
		key = s.key
	}
	record, err := pack(f.name, data, key)
	if err != nil {
		return sum, err
	}
	if len(record) > maxRecord {
		return sum, errTooLarge
	}
	return sum, in.write(f.name, record)
}
