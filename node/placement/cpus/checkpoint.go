package cpus

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/node/internal/checkpoint"
)

// CheckpointName is the name of kubelet's checkpoint in its root directory.
const CheckpointName = "cpu_manager_state"

// maxCheckpoint is the size of the largest checkpoint that is read, in bytes.
const maxCheckpoint = 1 << 20

// Assignments are the exclusive CPUs of containers, by the UIDs of their pods and their names.
type Assignments map[string]map[string]cpuset.CPUSet

func (a Assignments) add(uid, container string, set cpuset.CPUSet) {
	if a[uid] == nil {
		a[uid] = map[string]cpuset.CPUSet{}
	}
	a[uid][container] = set
}

// Checkpoint is the content of a checkpoint.
type Checkpoint struct {
	// Policy is the policy of kubelet's CPU manager: none or static.
	Policy string
	// Shared are the CPUs of all containers without exclusive ones.
	Shared cpuset.CPUSet
	// Exclusive are those of the others.
	Exclusive Assignments
	// Pods are the CPUs of pods with resources as a whole, by their UIDs. Those of their containers are among them, and
	// in Exclusive.
	Pods map[string]cpuset.CPUSet
}

// content is kubelet's CPUManagerCheckpointV2. kubelet 1.36 writes it without the feature gate
// PodLevelResourceManagers, and each version since 1.18 reads it. Names, types and order of its fields are part of the
// checksum.
type content struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries,omitempty"`
	Checksum      checkpoint.Checksum          `json:"checksum"`
}

// contentV1 is that of kubelet up to 1.17: its entries are by container IDs.
type contentV1 struct {
	PolicyName    string
	DefaultCPUSet string
	Entries       map[string]string
	Checksum      checkpoint.Checksum
}

// contentV4 is kubelet's since 1.37: what earlier versions read, and all of it as a text.
type contentV4 struct {
	*content
	checkpoint.Wrapped
}

// contentData is the text of contentV4.
type contentData struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries,omitempty"`
	PodEntries    map[string]podEntry          `json:"podEntries,omitempty"`
}

type podEntry struct {
	CPUSet string `json:"cpuSet,omitempty"`
}

const (
	kind = "state.CPUManagerCheckpoint"
	// noPods is what kubelet 1.36 has besides with that feature gate, for pods with CPUs as a whole.
	noPods = "PodEntries:(state.PodCPUAssignments)map[] "
)

// FormatCheckpoint returns the checkpoint in the format of kubelet 1.36, which later versions read, too; with pods in
// that of 1.37.
func FormatCheckpoint(c Checkpoint) []byte {
	out := &content{PolicyName: c.Policy, DefaultCPUSet: c.Shared.String(), Entries: map[string]map[string]string{}}
	for pod, containers := range c.Exclusive {
		out.Entries[pod] = map[string]string{}
		for name, set := range containers {
			out.Entries[pod][name] = set.String()
		}
	}
	out.Checksum = checkpoint.Sum(out, kind, "")
	data, _ := json.Marshal(out) // it has texts and a number, which have no error
	if len(c.Pods) == 0 {
		return data
	}
	all := contentData{out.PolicyName, out.DefaultCPUSet, out.Entries, map[string]podEntry{}}
	for pod, set := range c.Pods {
		all.PodEntries[pod] = podEntry{set.String()}
	}
	text, _ := json.Marshal(all)
	data, _ = json.Marshal(contentV4{out, checkpoint.Wrap(text)})
	return data
}

// ParseCheckpoint returns the content of a checkpoint of kubelet: of 1.18 or later, also without a checksum. Pods with
// CPUs as a whole are those of 1.37 or later.
func ParseCheckpoint(data []byte) (Checkpoint, error) {
	none := Checkpoint{}
	var raw struct {
		PolicyName    string                     `json:"policyName"`
		DefaultCPUSet string                     `json:"defaultCpuSet"`
		Entries       map[string]json.RawMessage `json:"entries"`
		PodEntries    map[string]podEntry        `json:"podEntries"`
		Checksum      checkpoint.Checksum        `json:"checksum"`
	}
	data, wrapped, err := checkpoint.Unwrap(data)
	if err != nil {
		return none, err
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return none, err
	}
	if len(raw.PodEntries) > 0 && !wrapped {
		return none, errors.New("it has CPUs of pods as a whole (feature gate PodLevelResourceManagers) in the form " +
			"of kubelet 1.36, which is not supported")
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
		if v1 := (&contentV1{raw.PolicyName, raw.DefaultCPUSet, old, 0}); raw.Checksum != 0 &&
			raw.Checksum != checkpoint.Sum(v1, kind, "") {
			return none, checkpoint.ErrChecksum
		}
		return none, errors.New("it is of a kubelet before 1.18, and has no names of containers")
	}
	v2 := &content{raw.PolicyName, raw.DefaultCPUSet, entries, 0}
	if raw.Checksum != 0 && raw.Checksum != checkpoint.Sum(v2, kind, "") &&
		raw.Checksum != checkpoint.Sum(v2, kind, noPods) {
		return none, checkpoint.ErrChecksum
	}
	c := Checkpoint{Policy: raw.PolicyName, Exclusive: Assignments{}}
	if c.Shared, err = parseSet(raw.DefaultCPUSet); err != nil {
		return none, fmt.Errorf("defaultCpuSet: %w", err)
	}
	for pod, containers := range entries {
		c.Exclusive[pod] = map[string]cpuset.CPUSet{}
		for name, text := range containers {
			if name == whole {
				return none, fmt.Errorf("a container of pod %q has no name", pod)
			}
			if c.Exclusive[pod][name], err = parseSet(text); err != nil {
				return none, fmt.Errorf("container %q of pod %q: %w", name, pod, err)
			}
		}
	}
	for pod, entry := range raw.PodEntries {
		set, err := parseSet(entry.CPUSet)
		if err != nil {
			return none, fmt.Errorf("pod %q: %w", pod, err)
		}
		if c.Pods == nil {
			c.Pods = map[string]cpuset.CPUSet{}
		}
		c.Pods[pod] = set
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

// readCheckpoint returns the content of the file. It fails with [os.ErrNotExist] if there is none, and with a
// [*StateError].
func readCheckpoint(r *safefile.Reader, path string) (c Checkpoint, err error) {
	err = checkpoint.Read(r, path, maxCheckpoint, func(data []byte) (err error) {
		c, err = ParseCheckpoint(data)
		return err
	})
	if damaged := (*checkpoint.DamagedError)(nil); errors.As(err, &damaged) {
		err = &StateError{Path: path, Problems: []string{"it cannot be read: " + err.Error()}}
	}
	return c, err
}

// StateError means that a checkpoint does not go with the policy or the machine. What to do is in its text.
type StateError struct {
	// Path is the file.
	Path string
	// Problems are what is wrong.
	Problems []string
	// Pods are those whose assignments cannot be used. There is none if the file cannot be read: then it is not known
	// which pods have exclusive CPUs.
	Pods []types.UID
	// Hint is [Options.ResetHint].
	Hint string
}

func (e *StateError) Error() string {
	text := fmt.Sprintf("the CPUs in the checkpoint %s cannot be used: %s. Drain the node and remove the file, or "+
		"start with a reset, which keeps what is right of it and gives running containers CPUs anew",
		e.Path, strings.Join(e.Problems, "; "))
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// StaticLeft reports whether a checkpoint of the policy static is left, or one that cannot be read. An agent with
// kubelet's policy none has a manager with [Options.Leave] then. It changes nothing. The error is that of the disk.
func StaticLeft(path string) (bool, error) {
	c, err := readCheckpoint(&safefile.Reader{}, path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	case err != nil && !errors.As(err, new(*StateError)):
		return false, fmt.Errorf("reading the assignments of CPUs: %w", err)
	}
	return err != nil || c.Policy != policyNone, nil
}
