package harness

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	logindPath      = "/org/freedesktop/login1"
	logindInterface = "org.freedesktop.login1.Manager"
	logindSignal    = "PrepareForShutdown"
)

const busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type><listen>unix:dir=DIR</listen><auth>EXTERNAL</auth>
  <policy context="default"><allow send_destination="*"/><allow send_type="signal"/><allow receive_sender="*"/><allow own="*"/></policy>
</busconfig>`

// Logind is a system bus of D-Bus with a stand-in for logind. It sends signals of a shutdown as its own
// that others have sent, as the node tests of Kubernetes do: an agent of this repository takes no such
// signal from others.
type Logind struct {
	// Env has the address of the bus, for who is to use it.
	Env []string

	conn *dbus.Conn
}

// StartLogind starts one that ends with the test.
func StartLogind(t testing.TB) *Logind {
	t.Helper()
	Need(t, "dbus-daemon")
	dir := t.TempDir()
	config := filepath.Join(dir, "bus.conf")
	if err := os.WriteFile(config, []byte(strings.ReplaceAll(busConfig, "DIR", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	daemon := exec.Command("dbus-daemon", "--nofork", "--print-address", "--config-file="+config)
	out, err := daemon.StdoutPipe()
	if err == nil {
		err = daemon.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait()
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address = strings.TrimSpace(address)
	l := &Logind{Env: []string{"DBUS_SYSTEM_BUS_ADDRESS=" + address}}
	if err := l.serve(t, address); err != nil {
		t.Fatal(err)
	}
	return l
}

// serve answers as logind until the test ends.
func (l *Logind) serve(t testing.TB, address string) error {
	var err error
	if l.conn, err = dbus.Connect(address); err != nil {
		return err
	}
	signals := make(chan *dbus.Signal, 16)
	l.conn.Signal(signals)
	relayed := make(chan struct{})
	t.Cleanup(func() {
		_ = l.conn.Close()
		<-relayed
	})
	go func() {
		defer close(relayed)
		for signal := range signals { // closed with the connection
			if signal.Name == logindInterface+"."+logindSignal && signal.Sender != l.conn.Names()[0] {
				_ = l.conn.Emit(logindPath, signal.Name, signal.Body...)
			}
		}
	}()
	if err := l.conn.Export(logindMethods{}, logindPath, logindInterface); err != nil {
		return err
	}
	if err := l.conn.Export(logindProperties{}, logindPath, "org.freedesktop.DBus.Properties"); err != nil {
		return err
	}
	if err := l.conn.AddMatchSignal(dbus.WithMatchInterface(logindInterface),
		dbus.WithMatchMember(logindSignal)); err != nil {
		return err
	}
	_, err = l.conn.RequestName("org.freedesktop.login1", dbus.NameFlagDoNotQueue)
	return err
}

type logindMethods struct{}

// Inhibit gives a lock that holds nothing.
func (logindMethods) Inhibit(what, who, why, mode string) (dbus.UnixFD, *dbus.Error) {
	file, err := os.Open(os.DevNull)
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	// The file is open until the reply is sent.
	time.AfterFunc(time.Minute, func() { file.Close() })
	return dbus.UnixFD(file.Fd()), nil
}

type logindProperties struct{}

// Get has a delay that is long enough for any agent.
func (logindProperties) Get(_, name string) (dbus.Variant, *dbus.Error) {
	if name == "PreparingForShutdown" {
		return dbus.MakeVariant(false), nil
	}
	return dbus.MakeVariant(uint64(time.Hour.Microseconds())), nil
}
