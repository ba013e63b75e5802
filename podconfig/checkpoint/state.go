package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// KeepState keeps a record of what a component needs after a reboot, such as the services
// of a cluster. It replaces the record of the same name; a nil state removes it. It does not
// block: [Dir.Run] writes the state as JSON. The state must not be changed afterwards.
// With a key it is encrypted. The name must be a file name, otherwise nothing is kept.
func (s *Dir) KeepState(name string, state any) {
	if !podspec.IsFileName(types.UID(name)) || len(name) > maxName {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(fileOfState(name), state)
}

// LoadState reads the record that an earlier Dir has kept under the name into the value
// that the pointer refers to, and reports whether there is one. A record that cannot be used
// is logged, and removed if it is damaged.
func (s *Dir) LoadState(name string, into any) bool {
	f := fileOfState(name)
	in := s.folderOf(f)
	record, err := safefile.Do(in.reader, in.file(f.name), func() ([]byte, error) {
		record, _, err := readRecord(in.file(f.name))
		return record, err
	})
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	var data []byte
	if err == nil {
		data, err = unpack(f.name, record, s.key)
	}
	if err == nil {
		if err = json.Unmarshal(data, into); err != nil {
			err = fmt.Errorf("%w: %w", errForeign, err)
		}
	}
	switch {
	case err == nil:
		return true
	case errors.Is(err, errUnread), errors.Is(err, safefile.ErrNoAnswer), errors.Is(err, errLocked),
		errors.Is(err, errNewer):
		s.log.Error(err, "Checkpoint cannot be used now; it stays where it is", "path", in.file(f.name))
	default:
		s.log.Error(errors.Join(err, in.remove(f.name)), "Checkpoint cannot be used; it was removed",
			"path", in.file(f.name))
	}
	return false
}

func fileOfState(name string) file { return file{state: true, name: name} }
