package supervise

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

// Arg0 is the name under which the program is a supervisor. Its first argument is the
// container's directory, its second one a title.
const Arg0 = "kubeletkit-supervisor"

// Names of files in a container's directory.
const (
	LockFile   = "lock"
	RecordFile = "container.json"
	StateFile  = "state.json"
	ExitFile   = "exit.json"
	SocketFile = "ctl.sock"
	// reservedFile becomes ExitFile when the container has ended.
	reservedFile = "exit.json.reserved"

	readyFD = 3 // the pipe to which the supervisor writes the greeting and ready
)

// MarkerEnv and KeyEnv are environment variables of all processes of a container. The value
// of MarkerEnv is the container's ID. Other users can read it, and make processes with it. So the
// value of KeyEnv is a secret, which identifies the processes when the supervisor was killed.
const (
	MarkerEnv = "KUBELETKIT_CONTAINER_ID"
	KeyEnv    = "KUBELETKIT_CONTAINER_KEY"
)

// Mark returns a variable of the environment with its value, which identifies the processes of
// a container of which only the ID is known.
func Mark(id string) string { return MarkerEnv + "=" + id }

// MarkOf returns the variable that identifies the processes of a container with this spec,
// which may be nil. Containers of earlier versions have no key.
func MarkOf(spec *Spec, id string) string {
	if spec != nil {
		for _, kv := range spec.Env {
			if value, ok := strings.CutPrefix(kv, KeyEnv+"="); ok && value != "" {
				return kv
			}
		}
	}
	return Mark(id)
}

// Spec describes a container to its supervisor. It is the field "spec" of the container's
// record.
type Spec struct {
	// ID is the ID of the container.
	ID string `json:"id"`
	// Args is the command with its arguments, Env its whole environment.
	Args []string `json:"args"`
	Env  []string `json:"env"`
	// Dir is the command's working directory.
	Dir string `json:"dir"`
	// User is the user of the command. If nil, it is that of the supervisor.
	User *User `json:"user,omitempty"`
	// NoNewPrivs means that set-user-ID programs have no effect.
	NoNewPrivs bool `json:"noNewPrivs,omitempty"`
	// OOMScoreAdj is the OOM score of the tree. If nil, it is that of the supervisor.
	OOMScoreAdj *int `json:"oomScoreAdj,omitempty"`
	// Stdin means that the command has an input, to which clients attach. StdinOnce closes
	// it after the first client.
	Stdin     bool `json:"stdin,omitempty"`
	StdinOnce bool `json:"stdinOnce,omitempty"`
	// TTY gives the command a terminal.
	TTY bool `json:"tty,omitempty"`
	// LogPath is the file of the log in CRI's format. If empty, there is no log.
	LogPath string `json:"logPath,omitempty"`
	// LogLimit is how large the log becomes.
	LogLimit LogLimit `json:"logLimit,omitzero"`
	// Cgroup is the cgroup of the tree.
	Cgroup Cgroup `json:"cgroup"`
	// CgroupMounts has the hierarchies of version 1 in which the cgroup is, by controller. The
	// server reads them once: the list of mounts is long on a node with many pods.
	CgroupMounts map[string]CgroupMount `json:"cgroupMounts,omitempty"`
}

// LogLimit is how large a log becomes. The supervisor holds it itself, since whoever looks at the size of a file
// looks too late: a container can write 100 MB in a second.
type LogLimit struct {
	// MaxSize is the size of a file in bytes. Only a line that is longer exceeds it. 0 is no limit.
	MaxSize int64 `json:"maxSize,omitempty"`
	// MaxFiles is the number of files of the log: the one that is written to, and rotated ones.
	MaxFiles int `json:"maxFiles,omitempty"`
}

// User is the user of a command.
type User struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

// Cgroup has the cgroups of a tree. The zero value is none.
type Cgroup struct {
	// V2 is the directory in the hierarchy of version 2.
	V2 string `json:"v2,omitempty"`
	// V1 has the directories in the hierarchies of version 1, by controller: cpu, cpuacct,
	// memory, pids.
	V1 map[string]string `json:"v1,omitempty"`
}

// None reports whether there are no cgroups.
func (c Cgroup) None() bool { return c.V2 == "" && len(c.V1) == 0 }

// CgroupMount is the mount point of a hierarchy and the cgroup that is mounted there.
type CgroupMount struct {
	Point string `json:"point"`
	Root  string `json:"root"`
}

// Process identifies a process. A pid is reused; the three fields together are not.
type Process struct {
	PID int `json:"pid"`
	// Start is the time of its start in clock ticks since the boot (proc(5), stat, field 22).
	Start uint64 `json:"start"`
	// Boot is the boot ID of the machine.
	Boot string `json:"boot"`
}

// State has the processes of a container whose command runs.
type State struct {
	Supervisor Process `json:"supervisor"`
	Command    Process `json:"command"`
	// StartedAt is the time at which the command was executed.
	StartedAt time.Time `json:"startedAt"`
	// Cgroup is that of the [Spec].
	Cgroup Cgroup `json:"cgroup"`
}

// Exit has how a container ended.
type Exit struct {
	// Code is the exit code, or 128 plus the number of the signal.
	Code int `json:"code"`
	// Signal is the signal that ended the command. It is 0 if none did.
	Signal int `json:"signal,omitempty"`
	// OOM means that the kernel killed a process of the tree because of its memory.
	OOM bool `json:"oom,omitempty"`
	// Lost means that the supervisor was killed, so that the code is not known. The server
	// has written the file.
	Lost bool `json:"lost,omitempty"`
	// Error is the reason why the command could not be executed or the code is not known.
	Error      string    `json:"error,omitempty"`
	StartedAt  time.Time `json:"startedAt"`
	FinishedAt time.Time `json:"finishedAt"`
	// CPU is the CPU time that the tree has used.
	CPU time.Duration `json:"cpu,omitempty"`
}

// WriteFile replaces the file with v as JSON. A reader gets the old content or the new one.
// After a power loss the file may be missing or damaged.
func WriteFile(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// Sync makes the content of a file, or changes in a directory, survive a power loss.
func Sync(path string) error {
	// Without O_NONBLOCK this would wait for a writer of a pipe in its place.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	// Some file systems cannot sync directories.
	if err := f.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return nil
}

// maxFile is the maximum size of a file in bytes. A request of CRI has up to 16 MiB, which
// JSON can make six times as long.
const maxFile = 100 << 20

// ReadFile reads a file of [WriteFile]. If it is too large or no file, has unknown fields, or
// anything after the value, it does not belong there, and the error is a [*BadFileError].
func ReadFile(path string, v any) error {
	data, err := safefile.ReadFile(path, maxFile)
	if errors.Is(err, safefile.ErrType) || errors.Is(err, safefile.ErrTooLarge) {
		return &BadFileError{Path: path, Err: err}
	}
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return &BadFileError{Path: path, Err: err}
	}
	if d.More() {
		return &BadFileError{Path: path, Err: fmt.Errorf("there is something after the value, at byte %d",
			d.InputOffset())}
	}
	return nil
}

// readStart reads the first bytes of a file.
func readStart(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// readSpec reads the spec in the record of a container. The other fields are the server's.
func readSpec(path string) (Spec, error) {
	var record struct{ Spec *Spec }
	data, err := readStart(path, maxFile) // the server has just written it
	if err != nil {
		return Spec{}, err
	}
	if err := json.Unmarshal(data, &record); err != nil {
		return Spec{}, &BadFileError{Path: path, Err: err}
	}
	if record.Spec == nil {
		return Spec{}, &BadFileError{Path: path, Err: errors.New("it has no spec")}
	}
	return *record.Spec, nil
}

// BadFileError is the error of a state file whose content is not valid.
type BadFileError struct {
	Path string
	Err  error
}

func (e *BadFileError) Error() string {
	return fmt.Sprintf("state file %s is damaged: %v", e.Path, e.Err)
}
func (e *BadFileError) Unwrap() error { return e.Err }
