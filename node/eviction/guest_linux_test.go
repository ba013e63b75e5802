package eviction

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// guestPods are pods of processes below a cgroup of version 2.
type guestPods struct {
	lifecycle.NopNode
	t       *testing.T
	mu      sync.Mutex
	pods    []*v1.Pod
	running map[types.UID]*exec.Cmd
	ended   map[types.UID]chan struct{}
	evicted []types.UID
	at      time.Time
}

const guestCgroups = "/sys/fs/cgroup"

// start starts a script in a cgroup of its own.
func (g *guestPods) start(uid types.UID, script string) {
	dir := filepath.Join(guestCgroups, "pods", string(uid))
	require.NoError(g.t, os.Mkdir(dir, 0o755))
	cmd := exec.CommandContext(g.t.Context(), "sh", "-c", "echo $$ >"+dir+"/cgroup.procs; "+script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(g.t, cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pods = append(g.pods,
		&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: string(uid), Namespace: "default", UID: uid}})
	g.running[uid], g.ended[uid] = cmd, ended
}

func (g *guestPods) Pods() []*v1.Pod {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.pods)
}

func (g *guestPods) State(uid types.UID) lifecycle.PodState {
	ended := g.hasEnded(uid)
	return lifecycle.PodState{Known: true, Stopped: ended, Finished: ended}
}

func (g *guestPods) Logger() logr.Logger {
	return funcr.New(func(_, args string) { g.t.Log(args) }, funcr.Options{Verbosity: 1})
}

func (g *guestPods) Evict(uid types.UID, e runtime.Eviction) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.t.Log(uid, e.Message)
	g.evicted, g.at = append(g.evicted, uid), time.Now()
	return syscall.Kill(-g.running[uid].Process.Pid, syscall.SIGKILL)
}

func (g *guestPods) hasEnded(uid types.UID) bool {
	select {
	case <-g.ended[uid]:
		return true
	default:
		return false
	}
}

func (g *guestPods) victims() []types.UID {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]types.UID(nil), g.evicted...)
}

// TestGuestPressure has a process take memory until the kernel signals pressure: it is evicted, and the other one is
// not. A clock that is set ahead during the grace period of a soft threshold evicts no pod.
func TestGuestPressure(t *testing.T) {
	if os.Getenv("KUBELETKIT_GUEST") == "" {
		t.Skip("runs in a guest, see test/e2e/guest")
	}
	_ = os.WriteFile(guestCgroups+"/cgroup.subtree_control", []byte("+memory +pids"), 0)
	pods := filepath.Join(guestCgroups, "pods")
	require.NoError(t, os.Mkdir(pods, 0o755))
	require.NoError(t, os.WriteFile(pods+"/cgroup.subtree_control", []byte("+memory +pids"), 0))
	for name, mib := range map[string]int{"memory.max": 256, "memory.high": 135} { // the threshold is at 136
		require.NoError(t, os.WriteFile(filepath.Join(pods, name), []byte(strconv.Itoa(mib<<20)), 0))
	}
	g := &guestPods{t: t, running: map[types.UID]*exec.Cmd{}, ended: map[types.UID]chan struct{}{}}
	thresholds, err := Parse(Config{
		Hard: map[string]string{"memory.available": "120Mi"}, Allocatable: true,
		Soft: map[string]string{"pid.available": "99.99%"}, SoftGracePeriod: map[string]string{"pid.available": "10m"},
	})
	require.NoError(t, err)
	sensor, err := NewMachine(MachineOptions{PodsCgroup: func() string { return "/pods" }, Logger: g.Logger()})
	require.NoError(t, err)
	meter, err := NewUsages(fake.New(fake.Options{}), UsagesOptions{
		PodCgroup: func(pod *v1.Pod) string { return "/pods/" + string(pod.UID) },
	})
	require.NoError(t, err)
	woken := make(chan struct{}, 1000)
	m, err := New(noting{sensor, woken}, meter, Options{Thresholds: thresholds})
	require.NoError(t, err)
	require.NoError(t, m.Join(g))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()

	g.start("good", "sleep 1000")
	require.Eventually(t, func() bool { return m.UnderPressure(v1.NodePIDPressure) }, 30*time.Second,
		100*time.Millisecond)
	now := time.Now().Add(time.Hour)
	require.NoError(t, unix.ClockSettime(unix.CLOCK_REALTIME, &unix.Timespec{Sec: now.Unix()}))
	time.Sleep(3 * time.Second)
	assert.Empty(t, g.victims(), "the clock was set")

	// on a busy machine, an emulated processor needs a minute
	g.start("hog", "head -c 220m /dev/zero | tail -c 220m | sleep 1000")
	require.Eventually(t, func() bool { return len(g.victims()) > 0 }, 3*time.Minute, 100*time.Millisecond)
	require.Eventually(t, func() bool { return g.hasEnded("hog") }, 30*time.Second, 100*time.Millisecond)
	assert.NotEmpty(t, woken, "the kernel signals")
	time.Sleep(5 * time.Second)
	assert.Equal(t, []types.UID{"hog"}, g.victims())
	assert.False(t, g.hasEnded("good"))
	events, _ := os.ReadFile(pods + "/memory.events")
	n, _ := keyed(string(events), "oom_kill")
	assert.Zero(t, n, "the kernel did not have to kill")

	_ = syscall.Kill(-g.running["good"].Process.Pid, syscall.SIGKILL)
	<-g.ended["good"]
	cancel()
	require.NoError(t, <-done)
}

// Memory that is set aside for huge pages is not available to others (HugepageAwareEviction of Kubernetes 1.37).
func TestGuestHugePages(t *testing.T) {
	if os.Getenv("KUBELETKIT_GUEST") == "" {
		t.Skip("runs in a guest, see test/e2e/guest")
	}
	m, err := NewMachine(MachineOptions{})
	require.NoError(t, err)
	available := func() int64 {
		r, err := m.Read(t.Context(), []Threshold{{Signal: MemoryAvailable}})
		require.NoError(t, err)
		return r[MemoryAvailable].Available
	}
	const pages = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
	before := available()
	require.NoError(t, os.WriteFile(pages, []byte("64"), 0))
	t.Cleanup(func() { assert.NoError(t, os.WriteFile(pages, []byte("0"), 0)) })
	assert.InDelta(t, before-128<<20, available(), 32<<20)
}

// noting notes the signals of the kernel.
type noting struct {
	Sensor
	woken chan struct{}
}

func (n noting) Watch(ctx context.Context, thresholds []Threshold, wake func()) error {
	return n.Sensor.Watch(ctx, thresholds, func() {
		select {
		case n.woken <- struct{}{}:
		default:
		}
		wake()
	})
}
