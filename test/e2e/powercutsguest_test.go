package e2e

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// cutDisk is where the disk is mounted. Its path is short, because there are sockets below it.
const cutDisk = "/cut"

// bootAfterCut runs in the guest. Boot 0 finds an empty disk; the others find what the boot before has left when its
// power was cut. It starts pods, and waits for the cut.
func bootAfterCut(t *testing.T, boot int) {
	mountCutDisk(t, boot)
	cluster, node := filepath.Join(cutDisk, "c"), filepath.Join(cutDisk, "node")
	c := NewClusterWith(t, ClusterOptions{Dir: cluster, Down: true})
	for i := range boot + 1 {
		require.NoError(t, c.Registry.Add(cutImage(i)))
	}
	a := c.NewAgent(t, AgentOptions{Dir: node, Config: map[string]any{"containerLogMaxSize": "256Ki",
		"containerLogMaxFiles": 4}})
	checkLogFiles(t, a)
	checkRecords(t, a)
	require.NoError(t, errors.Join(os.RemoveAll(a.LogPath())))
	step(t, "the disk is sound")
	c.Start(t)
	step(t, "containerd runs")
	if boot == 0 {
		c.Preload(t, "pause:1", "busybox:1")
	}
	// Every other time, only the checkpoint has the pods.
	away := boot%2 == 1
	if away {
		a.HideManifests(t)
	}
	a.Start(t)
	a.WaitHealthy(t)
	step(t, "the agent runs")

	writers := []*v1.Pod{cutWriter("writer-a"), cutWriter("writer-b")}
	finished := cutJob("finished")
	if boot == 0 {
		putSynced(t, a, append(writers, finished)...)
	}
	check := func(with int) {
		for _, pod := range writers {
			a.Await(t, pod, guestWithin, Running)
		}
		a.Await(t, finished, guestWithin, Phase(v1.PodSucceeded))
		for i := max(0, boot-2); i < with; i++ {
			a.Await(t, cutPull(i), guestWithin, Running)
		}
	}
	// What was put before the cut may not be in the checkpoint yet.
	check(boot - 1)
	if away {
		a.ShowManifests(t)
		check(boot)
	}
	check(boot)
	step(t, "all pods run")
	checkJobs(t, a, boot)
	checkRecords(t, a)
	left, err := filepath.Glob(filepath.Join(a.Root, "image_manager", "*", "*.tmp"))
	require.NoError(t, err)
	assert.Empty(t, left, "temporary files are removed")
	aside, err := filepath.Glob(filepath.Join(a.Root, "podcheckpoint", "aside", "*"))
	require.NoError(t, err)
	assert.Empty(t, aside, "no record of the checkpoint is damaged")
	for _, pod := range writers {
		Eventually(t, guestWithin, "the log is rotated and compressed", func() error {
			files, err := filepath.Glob(filepath.Join(a.Logs, "default_"+FullName(pod)+"_*",
				"main", fmt.Sprintf("%d.log.*.gz", Status(a.Await(t, pod, guestWithin, Running), "main").RestartCount)))
			require.NoError(t, err)
			if len(files) == 0 {
				return errors.New("no compressed file")
			}
			return nil
		})
		checkLogs(t, a, pod)
		if boot > 0 {
			checkLogs(t, a, pod, "--previous")
		}
	}
	for i := max(0, boot-2); i < boot; i++ {
		pod := a.Await(t, cutPull(i), guestWithin, Running)
		assert.LessOrEqual(t, int(Status(pod, "main").RestartCount), boot-i, "%s: its image is complete", pod.Name)
	}
	step(t, "the logs are sound")
	if boot >= 2 {
		a.Remove(t, cutPull(boot-2), cutJob(fmt.Sprintf("job-%d", boot-2)))
	}
	putSynced(t, a, cutPull(boot), cutJob(fmt.Sprintf("job-%d", boot)))
	if t.Failed() {
		return
	}
	fmt.Println(cutNow)
	select {}
}

func step(t *testing.T, what string) {
	t.Helper()
	up, _ := os.ReadFile("/proc/uptime")
	fmt.Printf("%s s after the boot: %s\n", strings.Fields(string(up))[0], what)
}

// mountCutDisk mounts the disk, which has the root and the images of containerd and everything of the agent. The state
// of containerd is in memory.
func mountCutDisk(t *testing.T, boot int) {
	t.Helper()
	run := func(args ...string) {
		t.Helper()
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		require.NoError(t, err, "%v: %s", args, out)
	}
	disk := os.Getenv("KUBELETKIT_GUEST_DISK")
	if boot == 0 {
		run("mkfs.ext4", "-q", disk)
	}
	require.NoError(t, os.MkdirAll(cutDisk, 0o755))
	run("mount", "-t", "ext4", disk, cutDisk)
	require.NoError(t, os.RemoveAll(filepath.Join(cutDisk, "c", "s")))
	state := filepath.Join(cutDisk, "c", "state")
	require.NoError(t, os.MkdirAll(state, 0o755))
	run("mount", "-t", "tmpfs", "state", state)
	require.NoError(t, os.MkdirAll(filepath.Join(cutDisk, "shared"), 0o777))
}

func cutImage(boot int) string { return fmt.Sprintf("cut%d", boot) }

// cutWriter writes numbered lines, some megabytes in a minute.
func cutWriter(name string) *v1.Pod {
	return MakePod(name, Main(Sh("main", "i=1; while :; do seq $i $((i+999)); i=$((i+1000)); sleep 0.2; done")))
}

// cutJob writes a line when it is started, and ends.
func cutJob(name string) *v1.Pod {
	return MakePod(name, Policy(v1.RestartPolicyNever),
		Main(Sh("main", "echo started >> /shared/"+name+"; sync /shared/"+name+"; sleep 1")),
		Shared(filepath.Join(cutDisk, "shared")))
}

// cutPull runs an image that the node does not have before the boot.
func cutPull(boot int) *v1.Pod {
	ctr := Sh("main", Forever)
	ctr.Image = strings.TrimSuffix(ctr.Image, "busybox:1") + "busybox:" + cutImage(boot)
	return MakePod(fmt.Sprintf("pull-%d", boot), Main(ctr))
}

// putSynced puts the pods so that their manifests survive a power cut.
func putSynced(t *testing.T, a *Agent, pods ...*v1.Pod) {
	t.Helper()
	a.Put(t, pods...)
	for _, pod := range pods {
		for _, path := range []string{filepath.Join(a.Manifests, pod.Name+".yaml"), a.Manifests} {
			f, err := os.Open(path)
			require.NoError(t, err)
			require.NoError(t, unix.Fsync(int(f.Fd())))
			require.NoError(t, f.Close())
		}
	}
}

// checkJobs asserts that no job runs again that has finished. The job of the boot before may: if the power was cut
// while it was started, containerd does not know that it was.
func checkJobs(t *testing.T, a *Agent, boot int) {
	t.Helper()
	if boot == 0 {
		return
	}
	shared, last := filepath.Join(cutDisk, "shared"), fmt.Sprintf("job-%d", boot-1)
	a.Await(t, cutJob(last), guestWithin, func(pod *v1.Pod) error {
		if pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed {
			return fmt.Errorf("phase is %q", pod.Status.Phase)
		}
		return nil
	})
	for i := range boot - 1 {
		assert.NoFileExists(t, filepath.Join(shared, fmt.Sprintf("job-%d", i)), "the job had finished, and runs again")
	}
	require.NoError(t, os.RemoveAll(filepath.Join(shared, last)))
	data, err := os.ReadFile(filepath.Join(shared, "finished"))
	require.NoError(t, err)
	assert.Equal(t, "started\n", string(data))
	dir, err := os.Open(shared)
	require.NoError(t, err)
	require.NoError(t, errors.Join(unix.Fsync(int(dir.Fd())), dir.Close()))
}

// checkRecords asserts that the files of pulled images are complete.
func checkRecords(t *testing.T, a *Agent) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(a.Root, "image_manager", "*", "sha256-*"))
	require.NoError(t, err)
	kinds := map[string]int{}
	for _, path := range files {
		if strings.HasSuffix(path, ".tmp") {
			kinds["temporary"]++
			continue
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the agent runs
		}
		require.NoError(t, err)
		var record struct{ Kind, Image, ImageRef string }
		assert.NoError(t, json.Unmarshal(data, &record), "%s: %q", path, data)
		assert.NotEmpty(t, record.Image+record.ImageRef, "%s: %q", path, data)
		kinds[record.Kind]++
	}
	t.Logf("files of pulled images: %v", kinds)
}

// checkLogFiles asserts that each file of a log is sound: the lines are complete, but for the last one, and their
// numbers increase. A compressed file is complete.
func checkLogFiles(t *testing.T, a *Agent) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(a.Logs, "default_writer-*", "main", "*"))
	require.NoError(t, err)
	temporary := 0
	for _, path := range files {
		if strings.HasSuffix(path, ".tmp") {
			temporary++
			continue
		}
		f, err := os.Open(path)
		require.NoError(t, err)
		var r io.Reader = f
		if strings.HasSuffix(path, ".gz") {
			zip, err := gzip.NewReader(f)
			if !assert.NoError(t, err, path) {
				continue
			}
			r = zip
		}
		in, last, partial := bufio.NewReader(r), int64(0), ""
		for {
			line, err := in.ReadString('\n')
			if errors.Is(err, io.EOF) {
				assert.False(t, line != "" && strings.HasSuffix(path, ".gz"),
					"%s: ends in the middle of a line: %q", path, line)
				break
			}
			if !assert.NoError(t, err, path) {
				break
			}
			fields := strings.Fields(line)
			if !assert.Len(t, fields, 4, "%s: %q", path, line) {
				break
			}
			partial += fields[3]
			if fields[2] == "P" { // the runtime has read a part of the line
				continue
			}
			n, err := strconv.ParseInt(partial, 10, 64)
			partial = ""
			if !assert.NoError(t, err, "%s: %q", path, line) || !assert.Greater(t, n, last, "%s: %q", path, line) {
				break
			}
			last = n
		}
		require.NoError(t, f.Close())
	}
	t.Logf("%d files of logs, %d of them temporary", len(files), temporary)
}

// checkLogs asserts that the command "logs" prints lines whose numbers increase. Of an instance that runs since the
// boot, none is missing between the first and the last.
func checkLogs(t *testing.T, a *Agent, pod *v1.Pod, flags ...string) {
	t.Helper()
	begin := time.Now()
	out, err := exec.Command(MinikubeletBinary(t), append([]string{"logs", "--root-dir", a.Root, FullName(pod)},
		flags...)...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("logs %v: %v: %s", flags, err, exit.Stderr)
	}
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	var last, missing int64
	for i, line := range lines {
		n, err := strconv.ParseInt(line, 10, 64)
		if !assert.NoError(t, err, "line %d of %d", i, len(lines)) ||
			!assert.Greater(t, n, last, "line %d of %d", i, len(lines)) {
			return
		}
		if i == 0 {
			continue // it may be the rest of a line that began in a file which was removed
		}
		if last > 0 {
			missing += n - last - 1
		}
		last = n
	}
	if len(flags) == 0 {
		assert.Zero(t, missing, "missing lines")
	}
	t.Logf("logs of %s %v: %d lines up to %d, %d missing, in %v", pod.Name, flags, len(lines), last,
		missing, time.Since(begin))
}
