package kubelet

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/client"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/local"
)

// The example manifests run as they are, with nothing installed, and commands find
// the agent that runs them.
func TestEmbeddedRuntime(t *testing.T) {
	t.Parallel()
	root, err := os.MkdirTemp("", "mk") // short, for the sockets in it
	require.NoError(t, err)
	defer func() { assert.NoError(t, os.RemoveAll(root)) }()
	manifests := filepath.Join(root, "manifests")
	require.NoError(t, os.CopyFS(manifests, os.DirFS(exampleManifests)))
	configFile := filepath.Join(root, "config.yaml")
	write(t, configFile, fmt.Sprintf("%spodLogsDir: %s/logs\nstaticPodPath: %s\nhealthzPort: 0\n",
		header, root, manifests))
	args := []string{"--config", configFile, "--container-runtime-endpoint=embedded",
		"--root-dir", root, "--hostname-override=node", "--show=none"}

	start := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- runKubelet(ctx, args) }()
		return func() { cancel(); require.NoError(t, <-done) }
	}
	withoutAgent := false
	command := func(args ...string) string {
		var out strings.Builder
		args = append([]string{"--root-dir", root}, args...)
		if err := client.Run(t.Context(), args, client.Env{Out: &out, Err: &strings.Builder{},
			StopPods: func(ctx context.Context, rootDir, endpoint string) error {
				return stopPods(ctx, rootDir, endpoint, &out)
			},
			Left: func(ctx context.Context, rootDir, endpoint string) (http.Handler, string, error) {
				if !withoutAgent {
					return nil, "", local.ErrNothingLeft
				}
				handler, text, err := left(ctx, config.Program{}, rootDir, endpoint)
				out.WriteString(text)
				return handler, text, err
			}}); err != nil {
			return out.String() + err.Error()
		}
		return out.String()
	}
	eventually := func(what string, ok func() bool) {
		t.Helper()
		require.Eventually(t, ok, time.Minute, 20*time.Millisecond, what)
	}
	allRun := func() bool {
		pods := command("pods")
		return strings.Contains(pods, "1/1") && strings.Contains(pods, "2/2")
	}

	stop := start()
	eventually("both pods are ready", allRun)
	assert.ErrorContains(t, runKubelet(t.Context(), args), "in use by another agent; stop it, or give this one a "+
		"directory of its own with --root-dir")
	assert.Equal(t, "hello-node\n", command("exec", "hello", "--", "sh", "-c", "echo $POD_NAME"))
	// An image is a name, and no pod has a network of its own: nothing else is said of them.
	for _, fiction := range []string{"Pulling", "Pulled", "present on machine", "MissingClusterDNS", "Image size"} {
		assert.NotContains(t, command("describe", "hello")+command("history", "hello"), fiction)
	}
	eventually("it says hello",
		func() bool { return strings.Contains(command("logs", "hello"), "hello from hello-node at ") })
	eventually("the reader reads", func() bool {
		return strings.HasPrefix(command("logs", "shared-volume"), "written before anything else ran\n")
	})
	stop()

	withoutAgent = true
	const goOn = "3 processes of 2 pods go on running; the next agent takes over. To end them: minikubelet stop"
	for args, part := range map[string]string{"pods": "default     shared-volume-node   2/2     Running",
		"describe hello": "Running: 1 of 1 containers are ready", "history hello": "Container hello runs",
		"logs hello": "hello from hello-node at ", "inspect hello": `"uid"`} {
		text := command(strings.Fields(args)...)
		assert.Contains(t, text, goOn)
		assert.Contains(t, text, part)
	}
	withoutAgent = false

	// Another agent takes the pods over.
	first := func() string { out, _, _ := strings.Cut(command("logs", "hello"), "\n"); return out }
	stop = start()
	eventually("both pods are ready again", allRun)
	assert.NotContains(t, command("pods"), "ago)", "nothing was restarted")
	assert.Contains(t, first(), "hello from hello-node")

	assert.Contains(t, command("restart", "hello"), "Stopped hello of pod default/hello-node")
	eventually("it runs again", func() bool { return strings.Contains(command("pods"), "1/1     Running   1 (") })
	assert.Contains(t, command("history", "hello"), "is to be stopped: a client has requested a restart by user ")
	assert.Contains(t, command("restart", "shared-volume", "-c", "first-line"), "does not run")
	assert.Contains(t, command("delete", "hello"), "is of manifest "+filepath.Join(manifests, "hello.yaml")+", which")
	assert.Contains(t, command("rm", "hello", "--move-to", root), "Pod default/hello-node is gone.")
	assert.NotContains(t, command("pods"), "hello-node")

	require.NoError(t, os.RemoveAll(manifests))
	require.NoError(t, os.Mkdir(manifests, 0o700))
	eventually("the pods are gone, with their containers", func() bool {
		left, err := os.ReadDir(filepath.Join(root, "process", "containers"))
		return err == nil && len(left) == 0 && command("pods") == ""
	})

	// An agent ends, and then its pods are ended without it.
	require.NoError(t, os.RemoveAll(manifests))
	require.NoError(t, os.CopyFS(manifests, os.DirFS(exampleManifests)))
	eventually("both pods are ready for the third time", allRun)
	stop()
	assert.Equal(t, "No agent runs. 2 pods are ending: default/hello-node, default/shared-volume-node\nAll pods "+
		"have ended.\n", command("stop"))
	assert.Equal(t, "No agent runs, and no pods run.\n", command("stop"))
}

// The error says which directory it is, and what to do.
func TestRootDirectoryThatCannotBeWrittenTo(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	require.NoError(t, os.Mkdir(root, 0o500))
	if os.Geteuid() == 0 {
		root = "/sys/kubeletkit" // where not even root can make a directory
	}
	_, err := openEmbedded(t.Context(), &config.Settings{RootDir: root}, logr.Discard())
	assert.ErrorContains(t, err, "root directory "+root+" cannot be written to by this user; give another one with "+
		"--root-dir: ")
}

// A container with runAsUser can use its emptyDir and its termination message, although only
// root may enter the root directory.
func TestEmbeddedRuntimeRunAsUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a container of another user")
	}
	root, err := os.MkdirTemp("", "mk") // 0700
	require.NoError(t, err)
	defer func() { assert.NoError(t, os.RemoveAll(root)) }()
	manifests := filepath.Join(root, "manifests")
	require.NoError(t, os.Mkdir(manifests, 0o700))
	write(t, filepath.Join(manifests, "pod.yaml"), `apiVersion: v1
kind: Pod
metadata: {name: user, annotations: {process.kubeletkit.io/mounts: env}}
spec:
  restartPolicy: Never
  containers:
  - name: c
    image: host
    command: [sh, -c, "echo hello > $MOUNT_DATA/file && cat $MOUNT_DATA/file $MOUNT_CONF/key $MOUNT_SECRET/key && printf %s-%s bye bye > $TERMINATION_MESSAGE_PATH"]
    securityContext: {runAsUser: 2012345678}
    volumeMounts: [{name: data, mountPath: /data}, {name: conf, mountPath: /conf}, {name: secret, mountPath: /secret}]
  volumes: [{name: data, emptyDir: {}}, {name: conf, configMap: {name: conf}}, {name: secret, secret: {secretName: secret}}]
`)
	write(t, filepath.Join(manifests, "conf.yaml"), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf}\ndata: "+
		"{key: \"one\\n\"}\n")
	write(t, filepath.Join(manifests, "secret.yaml"), "apiVersion: v1\nkind: Secret\nmetadata: {name: "+
		"secret}\nstringData: {key: \"two\\n\"}\n")
	configFile := filepath.Join(root, "config.yaml")
	write(t, configFile, fmt.Sprintf("%spodLogsDir: %s/logs\nstaticPodPath: %s\nhealthzPort: 0\n",
		header, root, manifests))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- runKubelet(ctx, []string{"--config", configFile, "--container-runtime-endpoint=embedded",
			"--root-dir", root, "--hostname-override=node",
			"--show=none"})
	}()
	command := func(args ...string) string {
		var out strings.Builder
		args = append([]string{"--root-dir", root}, args...)
		if err := client.Run(t.Context(), args, client.Env{Out: &out, Err: &strings.Builder{}}); err != nil {
			return err.Error()
		}
		return out.String()
	}
	require.Eventually(t, func() bool { return strings.Contains(command("describe", "user"), "bye-bye") }, time.Minute,
		50*time.Millisecond)
	assert.Equal(t, "hello\none\ntwo\n", command("logs", "user"))
	require.NoError(t, os.Remove(filepath.Join(manifests, "pod.yaml")))
	require.Eventually(t, func() bool {
		left, err := os.ReadDir(filepath.Join(root, "pods"))
		return err == nil && len(left) == 0
	}, time.Minute, 50*time.Millisecond)
	cancel()
	require.NoError(t, <-done)
}

// Each container has a supervisor, which is this program: what it initialises is paid for each.
func TestASupervisorDoesNotInitialiseClientGo(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Args = []string{"kubeletkit-supervisor", t.TempDir()}
	cmd.Env = []string{"GODEBUG=inittrace=1"}
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "only a server of runtime/process starts a program under the name "+
		"kubeletkit-supervisor")
	// The templates of --output, which need little before them: 30 µs of the 6 ms, and 14 KB.
	rest := strings.NewReplacer("init k8s.io/client-go/util/jsonpath ", "",
		"init k8s.io/client-go/third_party/forked/golang/template ", "").Replace(string(out))
	assert.NotContains(t, rest, "init k8s.io/client-go/")
	assert.NotContains(t, string(out), "init k8s.io/api/")
}
