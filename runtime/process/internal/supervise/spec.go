package supervise

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Arg0 is the name under which a binary is a supervisor. Its one argument is the
// container's directory.
const Arg0 = "kubeletkit-supervisor"

// Names of files in a container's directory.
const (
	LockFile    = "lock"
	SpecFile    = "spec.json"
	StateFile   = "state.json"
	ExitFile    = "exit.json"
	SocketFile  = "ctl.sock"
	ErrorFile   = "supervisor.err"
	readyFD     = 4 // where the supervisor says that the command runs
	firstUserFD = 3 // the lock
)

// MarkerEnv is in the environment of all that a container runs, with the
// container's ID. It is how the processes of a container whose supervisor was killed are found.
const MarkerEnv = "KUBELETKIT_CONTAINER_ID"

// Spec is what a supervisor is to run.
type Spec struct {
	// ID is the container's.
	ID string `json:"id"`
	// Args has the command and its arguments, Env its whole environment.
	Args []string `json:"args"`
	Env  []string `json:"env"`
	// Dir is the command's working directory.
	Dir string `json:"dir"`
	// User to run as; nil is the supervisor's own.
	User *User `json:"user,omitempty"`
	// NoNewPrivs keeps set-user-ID programs from having an effect.
	NoNewPrivs bool `json:"noNewPrivs,omitempty"`
	// OOMScoreAdj of the tree; nil leaves it.
	OOMScoreAdj *int `json:"oomScoreAdj,omitempty"`
	// Stdin keeps an input open for those who attach; StdinOnce closes it after the
	// first of them.
	Stdin     bool `json:"stdin,omitempty"`
	StdinOnce bool `json:"stdinOnce,omitempty"`
	// TTY gives the command a terminal.
	TTY bool `json:"tty,omitempty"`
	// LogPath of the log in CRI's format; "" for none.
	LogPath string `json:"logPath,omitempty"`
	// Cgroup the tree is in.
	Cgroup Cgroup `json:"cgroup"`
}

// User is whom a command runs as.
type User struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

// Cgroup is where a tree is accounted and limited. Each directory may be missing
// ("").
type Cgroup struct {
	// V2 is in the unified hierarchy.
	V2 string `json:"v2,omitempty"`
	// V1 has the directories in hierarchies of version 1, by controller: cpu, cpuacct,
	// memory, pids.
	V1 map[string]string `json:"v1,omitempty"`
}

// Process is one process of one boot of the machine: its pid may be used again,
// the three together are not.
type Process struct {
	PID int `json:"pid"`
	// Start is when it began, in clock ticks since the boot (proc(5), stat field 22).
	Start uint64 `json:"start"`
	// Boot is the ID of the boot.
	Boot string `json:"boot"`
}

// State is what a supervisor says of itself once its command runs.
type State struct {
	// Supervisor and Command are the two processes.
	Supervisor Process `json:"supervisor"`
	Command    Process `json:"command"`
	// StartedAt is when the command was executed.
	StartedAt time.Time `json:"startedAt"`
}

// Exit is how a container ended.
type Exit struct {
	// Code is the exit code, or 128 and the signal's number.
	Code int `json:"code"`
	// Signal that ended the command, 0 if none did.
	Signal int `json:"signal,omitempty"`
	// OOM says that the kernel killed something of the tree for its memory.
	OOM bool `json:"oom,omitempty"`
	// Lost says that the supervisor was killed, so that the code is not known; the server
	// has written this then.
	Lost bool `json:"lost,omitempty"`
	// Error is why the command could not be executed, or why nothing is known.
	Error      string    `json:"error,omitempty"`
	StartedAt  time.Time `json:"startedAt"`
	FinishedAt time.Time `json:"finishedAt"`
	// CPU is what the tree has used.
	CPU time.Duration `json:"cpu,omitempty"`
}

// WriteFile writes v as JSON under a name that has either the old content or the
// whole of the new one.
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

// ReadFile reads what [WriteFile] has written. Fields that it does not know, or
// anything after the value, are errors: then the file is someone else's.
func ReadFile(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return &BadFileError{Path: path, Err: err}
	}
	if d.More() {
		return &BadFileError{Path: path, Err: fmt.Errorf("something follows the value, at byte %d", d.InputOffset())}
	}
	return nil
}

// BadFileError is a file of state whose content is not what it should be.
type BadFileError struct {
	Path string
	Err  error
}

func (e *BadFileError) Error() string {
	return fmt.Sprintf("state file %s is damaged: %v", e.Path, e.Err)
}
func (e *BadFileError) Unwrap() error { return e.Err }
