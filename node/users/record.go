package users

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	// recordName is the name of the record in the directory of a pod. It is kubelet's.
	recordName = "userns"
	// maxRecord is the size of the largest record that is read, in bytes.
	maxRecord = 4096
)

// record is the content of a record, in the format of kubelet.
type record struct {
	UIDMappings []mapping `json:"uidMappings"`
	GIDMappings []mapping `json:"gidMappings"`
}

type mapping struct {
	HostID      uint32 `json:"hostId"`
	ContainerID uint32 `json:"containerId"`
	Length      uint32 `json:"length"`
}

// FormatRecord returns the record of a pod with the range.
func FormatRecord(r Range) []byte {
	m := []mapping{{HostID: r.First, Length: r.Length}}
	data, _ := json.Marshal(record{UIDMappings: m, GIDMappings: m}) // it has numbers only, which have no error
	return data
}

// ParseRecord returns the range in a record.
func ParseRecord(data []byte) (Range, error) {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return Range{}, err
	}
	ids := func(list []mapping) (out []runtime.IDMapping) {
		for _, m := range list {
			out = append(out, runtime.IDMapping{ContainerID: m.ContainerID, HostID: m.HostID, Length: m.Length})
		}
		return out
	}
	return rangeOf(&runtime.UserNamespace{UIDs: ids(r.UIDMappings), GIDs: ids(r.GIDMappings)})
}

// rangeOf returns the range of a user namespace such as kubelet and this package make them: one mapping from 0 on, the
// same for users and groups.
func rangeOf(ns *runtime.UserNamespace) (Range, error) {
	switch {
	case len(ns.UIDs) != 1 || len(ns.GIDs) != 1:
		return Range{}, fmt.Errorf("it has %d mappings of users and %d of groups, not one of each",
			len(ns.UIDs), len(ns.GIDs))
	case ns.UIDs[0] != ns.GIDs[0]:
		return Range{}, errors.New("the mappings of users and of groups differ")
	case ns.UIDs[0].ContainerID != 0:
		return Range{}, fmt.Errorf("the mapping begins at %d in the container, not at 0", ns.UIDs[0].ContainerID)
	}
	r := Range{First: ns.UIDs[0].HostID, Length: ns.UIDs[0].Length}
	return r, r.check()
}

// namespace returns the user namespace of a pod with the range.
func namespace(r Range) *runtime.UserNamespace {
	m := []runtime.IDMapping{{HostID: r.First, Length: r.Length}}
	return &runtime.UserNamespace{UIDs: m, GIDs: m}
}

// errRecord means that a record exists and is of no use.
var errRecord = errors.New("the record of the user namespace cannot be used")

// readRecord returns the range in the record of a pod. It fails with [os.ErrNotExist] and errRecord.
func readRecord(dir string) (Range, error) {
	path := filepath.Join(dir, recordName)
	data, err := safefile.ReadFile(path, maxRecord)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return Range{}, os.ErrNotExist
	case errors.Is(err, safefile.ErrTooLarge) || errors.Is(err, safefile.ErrType):
		return Range{}, fmt.Errorf("%w: %w", errRecord, err)
	case err != nil:
		return Range{}, err
	case len(data) == 0: // as in kubelet
		return Range{}, os.ErrNotExist
	}
	r, err := ParseRecord(data)
	if err != nil {
		return Range{}, fmt.Errorf("%w: %s: %w", errRecord, path, err)
	}
	return r, nil
}

// writeRecord writes the record of a pod so that it survives a power loss.
func writeRecord(dir string, r Range) error {
	if err := safefile.WriteSync(filepath.Join(dir, recordName), FormatRecord(r)); err != nil {
		return err
	}
	return safefile.SyncDir(dir)
}

// removeRecord removes the record of a pod, if there is one.
func removeRecord(dir string) error {
	if err := os.Remove(filepath.Join(dir, recordName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
