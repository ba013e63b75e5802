package cpus

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/dump"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

// CheckpointName is the name of kubelet's checkpoint in its root directory.
const CheckpointName = "cpu_manager_state"

// maxCheckpoint is the size of the largest checkpoint that is read, in bytes.
const maxCheckpoint = 1 << 20

// Assignments are the exclusive CPUs of containers, by the UIDs of their pods and their names.
type Assignments map[string]map[string]cpuset.CPUSet

// Checkpoint is the content of a checkpoint.
type Checkpoint struct {
	// Policy is the policy of kubelet's CPU manager: none or static.
	Policy string
	// Shared are the CPUs of all containers without exclusive ones.
	Shared cpuset.CPUSet
	// Exclusive are those of the others.
	Exclusive Assignments
}

// checkpoint is kubelet's CPUManagerCheckpointV2, which kubelet 1.36 writes and reads without the feature gate PodLevelResourceManagers. Names,
// types and order of its fields are part of the checksum.
type checkpoint struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries,omitempty"`
	Checksum      checksum                     `json:"checksum"`
}

// checkpointV3 is kubelet's CPUManagerCheckpoint with that feature gate. Pods with CPUs as a whole are not supported.
type checkpointV3 struct {
	PolicyName    string
	DefaultCPUSet string
	Entries       map[string]map[string]string
	PodEntries    podEntries
	Checksum      checksum
}

// checkpointV1 is that of kubelet up to 1.17: its entries are by container IDs.
type checkpointV1 struct {
	PolicyName    string
	DefaultCPUSet string
	Entries       map[string]string
	Checksum      checksum
}

type (
	checksum   uint64
	podEntries map[string]struct{}
)

// sum returns kubelet's checksum of a checkpoint whose checksum is 0: the hash of its dump, with the names of types that kubelet has.
func sum(c any) checksum {
	text := dump.ForHash(c)
	name := text[:strings.IndexByte(text, '{')]
	text = strings.Replace(text, name, "(*state.CPUManagerCheckpoint)", 1)
	text = strings.Replace(text, "PodEntries:(cpus.podEntries)", "PodEntries:(state.PodCPUAssignments)", 1)
	if i := strings.LastIndex(text, "Checksum:(cpus.checksum)"); i >= 0 {
		text = text[:i] + "Checksum:(checksum.Checksum)" + text[i+len("Checksum:(cpus.checksum)"):]
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // never fails
	return checksum(h.Sum32())
}

// FormatCheckpoint returns the checkpoint in the format of kubelet.
func FormatCheckpoint(c Checkpoint) []byte {
	out := &checkpoint{PolicyName: c.Policy, DefaultCPUSet: c.Shared.String(), Entries: map[string]map[string]string{}}
	for pod, containers := range c.Exclusive {
		out.Entries[pod] = map[string]string{}
		for name, set := range containers {
			out.Entries[pod][name] = set.String()
		}
	}
	out.Checksum = sum(out)
	data, _ := json.Marshal(out) // it has texts and a number, which have no error
	return data
}

// errChecksum means that a checkpoint was changed or damaged.
var errChecksum = errors.New("its checksum is wrong")

// ParseCheckpoint returns the content of a checkpoint of kubelet: of 1.18 or later, also without a checksum.
func ParseCheckpoint(data []byte) (Checkpoint, error) {
	none := Checkpoint{}
	var raw struct {
		PolicyName    string                     `json:"policyName"`
		DefaultCPUSet string                     `json:"defaultCpuSet"`
		Entries       map[string]json.RawMessage `json:"entries"`
		PodEntries    map[string]json.RawMessage `json:"podEntries"`
		Checksum      checksum                   `json:"checksum"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return none, err
	}
	if len(raw.PodEntries) > 0 {
		return none, errors.New("it has CPUs of pods as a whole, which kubelet's feature gate PodLevelResourceManagers assigns and which are not supported")
	}
	entries, old := map[string]map[string]string{}, map[string]string{}
	for key, value := range raw.Entries {
		containers, id := map[string]string{}, ""
		if json.Unmarshal(value, &id) == nil {
			old[key] = id
		} else if err := json.Unmarshal(value, &containers); err != nil {
			return none, fmt.Errorf("its entry %q: %w", key, err)
		}
		entries[key] = containers
	}
	if len(old) > 0 {
		if v1 := (&checkpointV1{raw.PolicyName, raw.DefaultCPUSet, old, 0}); raw.Checksum != 0 && raw.Checksum != sum(v1) {
			return none, errChecksum
		}
		return none, errors.New("it is of a kubelet before 1.18, and has no names of containers")
	}
	v2, v3 := &checkpoint{raw.PolicyName, raw.DefaultCPUSet, entries, 0}, &checkpointV3{raw.PolicyName, raw.DefaultCPUSet, entries, podEntries{}, 0}
	if raw.Checksum != 0 && raw.Checksum != sum(v2) && raw.Checksum != sum(v3) {
		return none, errChecksum
	}
	c := Checkpoint{Policy: raw.PolicyName, Exclusive: Assignments{}}
	var err error
	if c.Shared, err = parseSet(raw.DefaultCPUSet); err != nil {
		return none, fmt.Errorf("defaultCpuSet: %w", err)
	}
	for pod, containers := range entries {
		c.Exclusive[pod] = map[string]cpuset.CPUSet{}
		for name, text := range containers {
			if c.Exclusive[pod][name], err = parseSet(text); err != nil {
				return none, fmt.Errorf("container %q of pod %q: %w", name, pod, err)
			}
		}
	}
	return c, nil
}

// parseSet parses a list of CPUs. A range of it is not larger than a machine.
func parseSet(text string) (cpuset.CPUSet, error) {
	const digits = 4 // Linux has at most 8192
	for number := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == '-' }) {
		if len(number) > digits {
			return cpuset.New(), fmt.Errorf("%.64q: a CPU has no ID as long as that", text)
		}
	}
	return cpuset.Parse(text)
}

// readCheckpoint returns the content of the file. It fails with [os.ErrNotExist] if there is none.
func readCheckpoint(path string) (Checkpoint, error) {
	data, err := safefile.ReadFile(path, maxCheckpoint)
	switch {
	case errors.Is(err, safefile.ErrTooLarge) || errors.Is(err, safefile.ErrType):
		return Checkpoint{}, &StateError{Path: path, Problems: []string{err.Error()}}
	case err != nil:
		return Checkpoint{}, err
	}
	c, err := ParseCheckpoint(data)
	if err != nil {
		return Checkpoint{}, &StateError{Path: path, Problems: []string{"it cannot be read: " + err.Error()}}
	}
	return c, nil
}

// writeCheckpoint writes the file so that it survives a power loss.
func writeCheckpoint(path string, data []byte) error {
	if err := safefile.WriteSync(path, data); err != nil {
		return err
	}
	return safefile.SyncDir(filepath.Dir(path))
}

// StateError means that a checkpoint does not go with the policy or the machine. What to do is in its text.
type StateError struct {
	// Path is the file.
	Path string
	// Problems are what is wrong.
	Problems []string
}

func (e *StateError) Error() string {
	return fmt.Sprintf("the CPUs in the checkpoint %s cannot be used: %s. Drain the node and remove the file, or start with a reset, which keeps what is right of it and gives running containers CPUs anew",
		e.Path, strings.Join(e.Problems, "; "))
}

// LeaveStatic is for an agent whose containers have no exclusive CPUs: kubelet's policy none. It removes a checkpoint of the policy static
// without such containers but those of pods of which gone reports that nothing is left, so that kubelet can be started with that policy, too. If the checkpoint has some, or cannot be read,
// it fails with a [*StateError], or with reset it removes the checkpoint: containers that run keep their CPUs until they end, while others may use these, too.
func LeaveStatic(path string, gone func(types.UID) bool, reset bool) error {
	c, err := readCheckpoint(path)
	stateErr := (*StateError)(nil)
	switch {
	case errors.Is(err, os.ErrNotExist), err == nil && c.Policy == policyNone:
		return nil
	case err != nil && !errors.As(err, &stateErr):
		return fmt.Errorf("reading the assignments of CPUs: %w", err)
	case err == nil:
		left := 0
		for uid := range c.Exclusive {
			if !gone(types.UID(uid)) {
				left++
			}
		}
		if left > 0 {
			stateErr = &StateError{Path: path, Problems: []string{fmt.Sprintf("containers of %d pods have exclusive CPUs by the policy %s, and the policy is none", left, c.Policy)}}
		}
	}
	if stateErr != nil && !reset {
		return stateErr
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the assignments of CPUs: %w", err)
	}
	return nil
}
