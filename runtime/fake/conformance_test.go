package fake_test

import (
	"context"
	"errors"
	"flag"
	"net"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/fake/criserver"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Parallel tests wait for the times of the suite.
	testenv.Parallel(16)
	goleak.VerifyTestMain(m)
}

// program makes behaviors of commands, for the suite.
func program(c fake.Container) fake.Behavior {
	switch c.Command[0] {
	case "exit":
		after, _ := time.ParseDuration(c.Command[1])
		code, _ := strconv.Atoi(c.Command[2])
		return fake.Exits(after, int32(code))
	case "print":
		return fake.Behavior{RunFor: 1, Output: c.Command[1] + "\n"}
	case "stubborn":
		return fake.Behavior{IgnoresStop: true}
	default:
		return fake.Behavior{Exec: exec}
	}
}

func exec(ctx context.Context, cmd []string) (runtime.ExecResult, error) {
	switch cmd[0] {
	case "print":
		return runtime.ExecResult{Output: []byte(cmd[1])}, nil
	case "exit":
		code, _ := strconv.Atoi(cmd[1])
		return runtime.ExecResult{ExitCode: int32(code)}, nil
	default:
		<-ctx.Done()
		return runtime.ExecResult{}, ctx.Err()
	}
}

// subject returns the fake in the form that the suite requires. The suite uses it through rt.
func subject(t *testing.T, f *fake.Runtime, rt runtime.Runtime, dir string) *runtimetest.Subject {
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	f.Inject(fake.Fault{Call: "PullImage", Target: fake.Target{Image: "missing:1"}, Err: errors.New("no such image")})
	host := *f.Host()
	host.PodLogsDir = filepath.Join(dir, "logs")
	return &runtimetest.Subject{
		Runtime: rt, Host: &host, Dir: dir, Image: "image:1", MissingImage: "missing:1",
		Sleep:    []string{"sleep"},
		Stubborn: []string{"stubborn"},
		Exit: func(after time.Duration, code int32) []string {
			return []string{"exit", after.String(), strconv.Itoa(int(code))}
		},
		Print:     func(text string) []string { return []string{"print", text} },
		ExecPrint: func(text string) []string { return []string{"print", text} },
		ExecExit:  func(code int32) []string { return []string{"exit", strconv.Itoa(int(code))} },
		ExecSleep: []string{"sleep"},
		Restart: func(absent func()) error {
			f.Stop()
			absent()
			f.Start(fake.Keep)
			return nil
		},
		NetworkDown: func(down bool) { f.SetCondition(criv1.NetworkReady, !down, "NetworkPluginNotReady", "no CNI") },
	}
}

func TestConformance(t *testing.T) {
	dir := t.TempDir()
	runtimetest.Suite(t, runtimetest.Factory{VirtualTime: true, New: func(t *testing.T) *runtimetest.Subject {
		f := fake.New(fake.Options{Behavior: program})
		return subject(t, f, f, dir)
	}})
}

// TestConformanceOverTheWire runs in real time, since a gRPC connection has
// goroutines of its own.
func TestConformanceOverTheWire(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	runtimetest.Suite(t, runtimetest.Factory{Parallel: true, New: func(t *testing.T) *runtimetest.Subject {
		f := fake.New(fake.Options{Behavior: program})
		conn := serve(t, f)
		rt := cri.New(criv1.NewRuntimeServiceClient(conn), criv1.NewImageServiceClient(conn), cri.Options{})
		return subject(t, f, rt, t.TempDir())
	}})
}

// serve puts the fake behind a connection for the length of the test.
func serve(t testing.TB, f *fake.Runtime) *grpc.ClientConn {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- criserver.Serve(ctx, f, l) }()
	conn, err := grpc.NewClient("passthrough:///fake", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		cancel()
		require.NoError(t, <-served)
	})
	return conn
}
