package harness

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// KubectlCommand returns kubectl as an administrator, with more variables. Start it with
// [NetNS.Do].
func (p *ControlPlane) KubectlCommand(t testing.TB, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(KubernetesBinary(t, "kubectl"), args...)
	cmd.Env = append(append(os.Environ(), "KUBECONFIG="+p.admin, "HOME="+p.dir), env...)
	return cmd
}

// Piped runs a command in the network namespace, with an input. Its error has what it wrote to
// stderr.
func Piped(ns *NetNS, cmd *exec.Cmd, stdin string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if err := ns.Do(cmd.Start); err != nil {
		return "", err
	}
	if err := cmd.Wait(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err,
			strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// InTerminal runs a command in the network namespace, in a terminal of that size into which the
// input is typed. It returns what the terminal shows.
func InTerminal(t testing.TB, ns *NetNS, cmd *exec.Cmd, cols, rows uint16, input string, later ...Resize) string {
	t.Helper()
	master, slave := openTerminal(t)
	defer master.Close()
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}); err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err := ns.Do(cmd.Start)
	_ = slave.Close()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(master, input); err != nil {
		t.Fatal(err)
	}
	var shown []byte
	buf := make([]byte, 4<<10)
	for {
		n, err := master.Read(buf)
		shown = append(shown, buf[:n]...)
		if len(later) > 0 && bytes.Contains(shown, []byte(later[0].After)) {
			// The kernel sends the command a signal.
			if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ,
				&unix.Winsize{Row: later[0].Rows, Col: later[0].Cols}); err != nil {
				t.Error(err)
			}
			later = later[1:]
		}
		if err != nil { // EIO when the last process has closed the terminal
			break
		}
	}
	_ = cmd.Wait()
	return string(shown)
}

// Resize is a size that a terminal gets when a text has been shown.
type Resize struct {
	After      string
	Cols, Rows uint16
}

func openTerminal(t testing.TB) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

var forwarding = regexp.MustCompile(`Forwarding from 127\.0\.0\.1:(\d+)`)

// Forwarding starts a command that forwards a port, and returns the local port that it prints.
func Forwarding(t testing.TB, ns *NetNS, cmd *exec.Cmd) (port string, stop func()) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := ns.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	stop = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	line, _ := bufio.NewReader(out).ReadString('\n')
	found := forwarding.FindStringSubmatch(line)
	if found == nil {
		stop()
		t.Fatalf("%s printed %q, and on stderr %q", strings.Join(cmd.Args, " "), line, stderr.String())
	}
	return found[1], stop
}
