package mounting

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/machine"
)

// Run runs a program and returns its output, with that for errors. The error wraps [exec.ErrNotFound] if there is no
// such program, and is an [ExitCoder] if it has failed. It wraps the cause of ctx if ctx has ended.
type Run func(ctx context.Context, program string, args ...string) (output []byte, err error)

// ExitCoder is the error of a program that has failed, such as an [exec.ExitError].
type ExitCoder interface {
	error
	// ExitCode is the exit code of the program, and -1 if a signal has ended it.
	ExitCode() int
}

// maxOutput bounds the output in an error, in bytes.
const maxOutput = 4 << 10

// killed is how long a program has to end after SIGKILL. A call of the kernel that cannot be interrupted keeps it
// longer.
const killed = 2 * time.Second

// Program is the default [Run]. When ctx ends, it kills the program and its children. A program that does not end even
// then, since a call of the kernel keeps it, stays behind.
func Program(ctx context.Context, program string, args ...string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	path, err := lookPath(program)
	if err != nil {
		return nil, err
	}
	output := &buffer{}
	cmd := exec.Command(path, args...) //nolint:noctx // it is killed below, with its children
	cmd.Stdout, cmd.Stderr = output, output
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.WaitDelay = killed
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1) // of one, so that the goroutine ends
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return output.take(), err
	case <-ctx.Done():
	}
	killGroup(cmd)
	late := time.NewTimer(killed)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
	}
	return output.take(), context.Cause(ctx)
}

// directories are those of programs for the administrator, which may not be in the environment of a service.
var directories = [...]string{"/usr/sbin", "/sbin", "/usr/local/sbin"}

// lookPath finds a program.
func lookPath(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err == nil {
		return path, nil
	}
	for _, dir := range directories {
		if found, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return found, nil
		}
	}
	return "", err
}

// Has reports whether the machine has the program.
func Has(program string) bool {
	_, err := lookPath(program)
	return err == nil
}

// Options returns the mount options of a volume as kubelet passes them on (JoinMountOptions): with more, and with ro if
// readOnly, sorted, each once.
func Options(ofVolume []string, readOnly bool, more ...string) []string {
	options := slices.Concat(ofVolume, more)
	if readOnly {
		options = append(options, "ro")
	}
	slices.Sort(options)
	return slices.Compact(options)
}

// Mount mounts source at target. The text of its error is that of mount-utils.
func (r Run) Mount(ctx context.Context, source, target, fsType string, options []string) error {
	var args []string
	if fsType != "" {
		args = append(args, "-t", fsType)
	}
	if len(options) > 0 {
		args = append(args, "-o", strings.Join(options, ","))
	}
	args = append(args, source, target)
	output, err := r(ctx, "mount", args...)
	if err == nil {
		return nil
	}
	return fmt.Errorf("mount failed: %w\nMounting command: mount\nMounting arguments: %s\nOutput: %s%s", err,
		strings.Join(args, " "), short(output), lacking(err))
}

// Unmount unmounts target. The text of its error is that of mount-utils.
func (r Run) Unmount(ctx context.Context, target string, flags ...string) error {
	output, err := r(ctx, "umount", append(flags, target)...)
	if err == nil {
		return nil
	}
	return fmt.Errorf("unmount failed: %w\nUnmounting arguments: %s\nOutput: %s%s", err, target, short(output),
		lacking(err))
}

// lacking says what the agent needs to mount, if it lacks that.
func lacking(err error) string {
	var failed ExitCoder
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "the agent needs the programs of the package util-linux or mount"
	case !errors.As(err, &failed) || machine.MayMount():
		return ""
	}
	return "the agent may not mount: it needs CAP_SYS_ADMIN in the first user namespace, as root has it"
}

func short(output []byte) string {
	if len(output) > maxOutput {
		output = output[:maxOutput]
	}
	return strings.ToValidUTF8(string(output), "?")
}
