package kubelet

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	clusternode "github.com/kubeletkit/kubeletkit/cluster/node"
	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/systemd"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime/process"
)

// ownDirs are flags by which an agent of root on a container runtime has all its files in the directory.
func ownDirs(dir string) []string {
	return []string{"--device-plugins-dir", filepath.Join(dir, "device-plugins"), "--cert-dir",
		filepath.Join(dir, "pki"), "--log-links-dir", filepath.Join(dir, "links")}
}

// agentEnv makes this binary an agent with the arguments in it, for tests that kill it.
const agentEnv = "MINIKUBELET_TEST_AGENT"

// testOptions are the options of a kubelet that has this process for its own. libraries gets its logger, unless it is
// nil.
func testOptions(libraries func(logr.Logger)) Options {
	return Options{Name: "minikubelet", Getenv: os.Getenv, process: processOptions{
		out: os.Stdout, err: os.Stderr, onNew: func(log logr.Logger) *systemd.Notifier {
			if libraries != nil {
				libraries(log)
			}
			return systemd.FromEnvironment()
		},
	}}
}

// runKubelet runs a kubelet with the flags.
func runKubelet(ctx context.Context, args []string) error { return run(ctx, args, testOptions(nil)) }

func TestMain(m *testing.M) {
	process.Init() // tests run containers that are processes of this machine
	if args := os.Getenv(agentEnv); args != "" {
		os.Args = append(os.Args[:1], strings.Split(args, "\n")...)
		Main(Options{Name: "minikubelet"})
	}
	flag.Parse()
	// Parallel tests wait for processes and for the periods of agents.
	testenv.Parallel(8)
	goleak.VerifyTestMain(m)
}

// kubeadm reads the line of --version. --version=raw has the form of kubelet's.
func TestVersionFlag(t *testing.T) {
	print := func(flag string) string {
		var out, errOut strings.Builder
		require.NoError(t, execute(t.Context(), testOptions(nil), []string{flag}, nil, &out, &errOut))
		return out.String()
	}
	assert.Equal(t, "Kubernetes "+clusternode.DefaultKubeletVersion+"\n", print("--version"))
	assert.Regexp(t, `^version\.Info\{Major:"1", Minor:"\d+", .*GitVersion:"`+
		regexp.QuoteMeta(clusternode.DefaultKubeletVersion)+
		`", .*GoVersion:"go.*", Compiler:"\w+", Platform:"\w+/\w+"\}\n$`, print("--version=raw"))
}

func TestExampleManifestsAreGood(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(exampleManifests, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	names := map[string]bool{}
	for _, path := range files {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		pods, err := manifest.Load(data, manifest.Options{NodeName: "node", Origin: path})
		require.NoError(t, err, path)
		require.Len(t, pods, 1, path)
		names[pods[0].Name] = true
		assert.Equal(t, v1.RestartPolicyAlways, pods[0].Spec.RestartPolicy, "defaults are filled in")
		assert.Equal(t, v1.PullIfNotPresent, pods[0].Spec.Containers[0].ImagePullPolicy)
	}
	assert.Equal(t, map[string]bool{"hello-node": true, "shared-volume-node": true}, names)
}

// freePorts returns ports of loopback that nobody listens on. They are none of those that the
// kernel gives to connections and to listeners that ask for any, so that nobody takes them before
// the agent does.
func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for range 1000 {
		port := 10_000 + rand.IntN(20_000)
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			defer func() { _ = l.Close() }() // when all are found: each is another one
			ports = append(ports, port)
		}
		if len(ports) == n {
			return ports
		}
	}
	t.Fatal("no free ports")
	return nil
}

func freePort(t *testing.T) int { return freePorts(t, 1)[0] }

func get(t *testing.T, port int, path string) (code int, body string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var resp *http.Response
	require.Eventually(t, func() (ok bool) {
		var err error
		resp, err = client.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(data)
}

// Nothing is global: agents with directories and sockets of their own run side by
// side in one process. Their runtimes are away, which keeps none from its ports.
func TestSeveralAgentsInOneProcess(t *testing.T) {
	dir := t.TempDir()
	args := func(name string, port, healthz int) []string {
		root := filepath.Join(dir, name)
		t.Cleanup(func() { unmount(root) })
		config := filepath.Join(dir, name+".yaml")
		write(t, config, fmt.Sprintf("%spodLogsDir: %s/logs\nstaticPodPath: %s\n", header, root, root))
		return append(ownDirs(root),
			"--config", config, "--root-dir", root, "--hostname-override", name, "--address=127.0.0.1",
			"--container-runtime-endpoint=unix://"+root+"/cri.sock",
			fmt.Sprintf("--read-only-port=%d", port), fmt.Sprintf("--healthz-port=%d", healthz),
		)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ports := freePorts(t, 3)
	a, b, healthz := ports[0], ports[1], ports[2]
	done := make(chan error, 2)
	for _, args := range [][]string{args("a", a, 0), args("b", b, healthz)} {
		go func() { done <- runKubelet(ctx, args) }()
	}
	for _, port := range ports {
		code, body := get(t, port, "/healthz")
		assert.Equal(t, http.StatusOK, code)
		assert.Equal(t, "ok", body)
	}
	_, body := get(t, a, "/pods")
	var list v1.PodList
	require.NoError(t, yaml.Unmarshal([]byte(body), &list))
	assert.Equal(t, "PodList", list.Kind)
	code, _ := get(t, healthz, "/pods")
	assert.Equal(t, http.StatusNotFound, code, "the healthz port tells nothing else")

	require.ErrorContains(t, runKubelet(ctx, args("a", 0, 0)), "in use by another agent")
	require.ErrorContains(t, runKubelet(ctx, args("c", a, 0)), "readOnlyPort")

	begun := time.Now()
	cancel()
	require.NoError(t, <-done)
	require.NoError(t, <-done)
	assert.Less(t, time.Since(begun), 5*time.Second)
}

// What others have put into the directory must have no effect, and neither must they get a
// socket for commands there.
func TestRootDirectoryOfOthers(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	require.NoError(t, os.Mkdir(root, 0o700))
	require.NoError(t, os.Chmod(root, 0o777))
	for _, args := range [][]string{nil, {"--container-runtime-endpoint=unix://" + root + "/cri.sock",
		"--allow-no-pods"}} {
		err := runKubelet(t.Context(), slices.Concat(args, ownDirs(root), []string{"--root-dir", root,
			"--healthz-port=0"}))
		require.ErrorContains(t, err, root+" has mode 0777 and can be written by every user")
		left, err := os.ReadDir(root)
		require.NoError(t, err)
		assert.Empty(t, left)
	}
}

func TestASignalDuringTheStartEndsIt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	libraries := 0
	err := run(ctx, []string{"--root-dir", t.TempDir(), "--healthz-port=0"}, testOptions(func(log logr.Logger) {
		libraries++
		assert.NotNil(t, log.GetSink())
	}))
	if err != nil {
		require.ErrorIs(t, err, context.Canceled)
	}
	assert.Equal(t, 1, libraries, "libraries log by the logger of the agent")
}

// runOnceUntil runs the agent with --runonce. The time is up when its log has the text.
func runOnceUntil(t *testing.T, text string, args ...string) error {
	t.Helper()
	s, err := program.Parse(slices.Concat(ownDirs(t.TempDir()), args, []string{"--runonce"}))
	require.NoError(t, err)
	ctx, end := context.WithCancelCause(t.Context())
	defer end(nil)
	log := funcr.New(func(_, line string) {
		if strings.Contains(line, text) {
			end(context.DeadlineExceeded)
		}
	}, funcr.Options{})
	k, err := New(ctx, &Config{s, Options{Name: "minikubelet", Logger: log}})
	if err != nil {
		return err
	}
	return k.Run(ctx)
}

func TestRunOnceReportsWhenItIsCutShort(t *testing.T) {
	root := t.TempDir()
	t.Cleanup(func() { unmount(root) })
	err := runOnceUntil(t, "Container runtime is not ready", "--root-dir", root, "--container-runtime-endpoint", root+
		"/cri.sock", "--pod-manifest-path", root)
	require.ErrorContains(t, err, "not every pod got to run")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// A manifest that cannot be used is a pod that did not run.
func TestRunOnceReportsBrokenManifests(t *testing.T) {
	root := t.TempDir()
	t.Cleanup(func() { unmount(root) })
	path := filepath.Join(root, "broken.yaml")
	write(t, path, "[")
	old := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(path, old, old))
	configFile := filepath.Join(root, "config.yml.txt")
	write(t, configFile, header+"podLogsDir: logs\n")
	err := runOnceUntil(t, "problem with manifests", "--config", configFile, "--root-dir", root,
		"--container-runtime-endpoint", root+"/cri.sock", "--pod-manifest-path", path)
	require.ErrorContains(t, err, "manifest "+path+": yaml:")
}

// header begins a configuration for any machine, also one on which a kubelet would not start.
const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailSwapOn: " +
	"false\nfailCgroupV1: false\n"

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

func TestMemoryIsSavedUnlessTheEnvironmentHasASay(t *testing.T) {
	was := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(was) })
	for _, tc := range []struct {
		gogc, limit string
		want        int
	}{{"", "", 50}, {"100", "", 100}, {"", "50MiB", 100}, {"off", "50MiB", 100}} {
		t.Setenv("GOGC", tc.gogc)
		t.Setenv("GOMEMLIMIT", tc.limit)
		saveMemory()
		assert.Equal(t, tc.want, debug.SetGCPercent(100), "GOGC=%s GOMEMLIMIT=%s", tc.gogc, tc.limit)
	}
}

// exampleManifests is the directory of the manifests of examples/minikubelet.
var exampleManifests = filepath.Join("..", "examples", "minikubelet", "manifests")

// program is the program of the tests.
var program = config.Program{Name: "minikubelet", Getenv: os.Getenv}
