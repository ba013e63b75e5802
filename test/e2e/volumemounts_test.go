package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// TestVolumesInContainers is about what containers see of their volumes.
func TestVolumesInContainers(t *testing.T) {
	t.Parallel()
	s := newSuite(t, AgentOptions{})
	s.runAll(t, []podTest{
		{"Propagation", testPropagation},
		{"RecursiveReadOnly", testRecursiveReadOnly},
		{"OtherUser", testVolumesOfAnotherUser},
		{"SubPathUpdate", testSubPathUpdate},
		{"SharedMemory", testSharedMemory},
		{"EnvFiles", testEnvFiles},
	})
	assert.Empty(t, mountsIn(t, s.agent.Root))
}

// mountPoint returns a directory that is a mount point of its own, until the test ends.
func mountPoint(t *testing.T, propagation uintptr) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	require.NoError(t, unix.Mount("", dir, "", unix.MS_PRIVATE, ""))
	require.NoError(t, unix.Mount("", dir, "", propagation, ""))
	return dir
}

// mountMemory mounts a file system in memory, with one file, that ends with the mount above it.
func mountMemory(t *testing.T, at, file string) {
	t.Helper()
	require.NoError(t, os.Mkdir(at, 0o755))
	require.NoError(t, unix.Mount("tmpfs", at, "tmpfs", 0, "size=64k"))
	require.NoError(t, os.WriteFile(filepath.Join(at, file), nil, 0o644))
}

// propagated returns a container with the volume "v" at /v.
func propagated(name string, mode v1.MountPropagationMode) v1.Container {
	c := Sh(name, Forever)
	c.SecurityContext = &v1.SecurityContext{Privileged: ptr(true)}
	c.VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v", MountPropagation: &mode}}
	return c
}

// Mounts of the host appear in containers that request it, and those of a container on the host, if
// the volume is on a shared mount.
func testPropagation(t *testing.T, s *suite) {
	dir := mountPoint(t, unix.MS_SHARED)
	pod := s.put(t, MakePod("propagation", Main(propagated("none", v1.MountPropagationNone),
		propagated("host", v1.MountPropagationHostToContainer), propagated("both", v1.MountPropagationBidirectional)),
		Volume("v", hostPath(dir, v1.HostPathDirectory))))
	name := FullName(pod)
	s.agent.Await(t, pod, within, Running)
	has := func(container, file string) bool {
		_, err := s.TryExec(t, name, container, "test", "-e", "/v/"+file)
		return err == nil
	}
	mountMemory(t, filepath.Join(dir, "of-host"), "x")
	for _, container := range []string{"host", "both"} {
		s.Exec(t, name, container, "sh", "-c", fmt.Sprintf("mkdir /v/of-%[1]s && mount -t tmpfs tmpfs /v/of-%[1]s "+
			"&& touch /v/of-%[1]s/x", "container-"+container))
	}
	assert.True(t, has("host", "of-host/x"))
	assert.True(t, has("both", "of-host/x"))
	assert.False(t, has("none", "of-host/x"))

	assert.True(t, has("host", "of-container-host/x"))
	assert.NoFileExists(t, filepath.Join(dir, "of-container-host/x"), "HostToContainer")
	assert.False(t, has("both", "of-container-host/x"))

	assert.FileExists(t, filepath.Join(dir, "of-container-both/x"), "Bidirectional")
	assert.True(t, has("host", "of-container-both/x"))
	assert.False(t, has("none", "of-container-both/x"))
	s.remove(t, pod)
	assert.FileExists(t, filepath.Join(dir, "of-container-both/x"), "the mount is the host's")
	assert.FileExists(t, filepath.Join(dir, "of-host/x"))

	// The root directory of the agent is on a shared mount, whatever the machine has.
	own := filepath.Join(s.agent.Root, "own")
	require.NoError(t, os.Mkdir(own, 0o755))
	inRoot := s.put(t, MakePod("propagation-root", Main(propagated("c", v1.MountPropagationBidirectional)),
		Volume("v", hostPath(own, v1.HostPathDirectory))))
	s.agent.Await(t, inRoot, within, Running)
	s.remove(t, inRoot)

	private := mountPoint(t, unix.MS_PRIVATE)
	refused := s.put(t, MakePod("propagation-private", Main(propagated("c", v1.MountPropagationBidirectional)),
		Volume("v", hostPath(private, v1.HostPathDirectory))))
	s.agent.Await(t, refused, within, func(pod *v1.Pod) error {
		if state := Status(pod, "c").State.Waiting; state == nil ||
			!strings.Contains(state.Message, "not a shared mount") {
			return fmt.Errorf("%+v", Status(pod, "c").State)
		}
		return nil
	})
}

// readsOnlyDeep reports whether the default runtime handler makes mounts recursively read-only.
func readsOnlyDeep(t *testing.T, s *suite) bool {
	t.Helper()
	status, err := s.Runtime.Status(t.Context(), &cri.StatusRequest{})
	require.NoError(t, err)
	return slices.ContainsFunc(status.RuntimeHandlers, func(h *cri.RuntimeHandler) bool {
		return h.Name == "" && h.GetFeatures().GetRecursiveReadOnlyMounts()
	})
}

// A recursively read-only volume is read-only with all that is mounted below it (KEP-3857).
func testRecursiveReadOnly(t *testing.T, s *suite) {
	dir := mountPoint(t, unix.MS_PRIVATE)
	mountMemory(t, filepath.Join(dir, "sub"), "x")
	with := func(name string, mode v1.RecursiveReadOnlyMode) v1.Container {
		c := Sh(name, Forever)
		c.VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v", ReadOnly: true, RecursiveReadOnly: &mode}}
		return c
	}
	pod := s.put(t, MakePod("recursive", Main(with("disabled", v1.RecursiveReadOnlyDisabled),
		with("possible", v1.RecursiveReadOnlyIfPossible)),
		Volume("v", hostPath(dir, v1.HostPathDirectory))))
	enabled := s.put(t, MakePod("recursive-enabled", Main(with("enabled", v1.RecursiveReadOnlyEnabled)),
		Volume("v", hostPath(dir, v1.HostPathDirectory))))
	got := s.agent.Await(t, pod, within, Running)
	writes := func(pod *v1.Pod, container, file string) error {
		_, err := s.TryExec(t, FullName(pod), container, "touch", "/v/"+file)
		return err
	}
	mode := func(pod *v1.Pod, container string) v1.RecursiveReadOnlyMode {
		for _, mount := range Status(pod, container).VolumeMounts {
			if mount.Name == "v" && mount.RecursiveReadOnly != nil {
				return *mount.RecursiveReadOnly
			}
		}
		return ""
	}
	for _, container := range []string{"disabled", "possible"} {
		assert.ErrorContains(t, writes(pod, container, "x"), "Read-only")
	}
	assert.NoError(t, writes(pod, "disabled", "sub/x"))
	assert.Equal(t, v1.RecursiveReadOnlyDisabled, mode(got, "disabled"))
	if !readsOnlyDeep(t, s) {
		t.Log("the runtime handler makes no mounts recursively read-only")
		assert.NoError(t, writes(pod, "possible", "sub/x"))
		assert.Equal(t, v1.RecursiveReadOnlyDisabled, mode(got, "possible"))
		s.agent.Await(t, enabled, within, Waiting("enabled", "CreateContainerConfigError"), func(pod *v1.Pod) error {
			if message := Status(pod, "enabled").State.Waiting.Message; !strings.Contains(message,
				`volume "v" requested recursive read-only mode, but it is not supported by the runtime`) {
				return errors.New(message)
			}
			return nil
		})
		return
	}
	assert.ErrorContains(t, writes(pod, "possible", "sub/x"), "Read-only")
	assert.Equal(t, v1.RecursiveReadOnlyEnabled, mode(got, "possible"))
	got = s.agent.Await(t, enabled, within, Running)
	assert.ErrorContains(t, writes(enabled, "enabled", "sub/x"), "Read-only")
	assert.Equal(t, v1.RecursiveReadOnlyEnabled, mode(got, "enabled"))
}

// A container of another user uses its volumes by the group of the pod, also sub-paths that did not
// exist.
func testVolumesOfAnotherUser(t *testing.T, s *suite) {
	s.agent.PutFile(t, "other-user-objects.yaml", `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: other-user}, data: {key: config}}
- {apiVersion: v1, kind: Secret, metadata: {name: other-user}, stringData: {key: secret}}
`)
	c := Sh("c", Forever)
	c.SecurityContext = &v1.SecurityContext{RunAsUser: ptr(int64(1234)), RunAsGroup: ptr(int64(2345)),
		Capabilities: &v1.Capabilities{Drop: []v1.Capability{"ALL"}}}
	c.VolumeMounts = []v1.VolumeMount{
		{Name: "config", MountPath: "/config"}, {Name: "config", MountPath: "/config-key", SubPath: "key"},
		{Name: "secret", MountPath: "/secret"}, {Name: "secret", MountPath: "/secret-key", SubPath: "key"},
		{Name: "disk", MountPath: "/disk"}, {Name: "disk", MountPath: "/disk-sub", SubPath: "a/b"},
		{Name: "memory", MountPath: "/memory"}, {Name: "memory", MountPath: "/memory-sub", SubPath: "a/b"},
	}
	pod := MakePod("other-user", Main(c),
		Volume("config",
			v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{
				Name: "other-user"}, DefaultMode: ptr(int32(0o400))}}),
		Volume("secret", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "other-user",
			DefaultMode: ptr(int32(0o400))}}),
		Volume("disk", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}),
		Volume("memory", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}))
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr(int64(3456))}
	s.put(t, pod)
	s.agent.Await(t, pod, within, Running)
	sh := func(script string) string {
		return strings.TrimSpace(s.Exec(t, FullName(pod), "c", "sh", "-c", script))
	}
	assert.Equal(t, "1234 2345", sh("echo $(id -u) $(id -g)"))
	assert.Equal(t, "config config secret secret", sh("echo $(cat /config/key) $(cat /config-key) $(cat "+
		"/secret/key) $(cat /secret-key)"))
	assert.Equal(t, "440 0 3456\n440 0 3456", sh("stat -L -c '%a %u %g' /config/key /secret-key"))
	assert.Equal(t, "2777 3456\n2777 3456", sh("stat -c '%a %g' /disk /disk-sub"))
	for _, volume := range []string{"disk", "memory"} {
		assert.Equal(t, "1234 3456\nhello", sh(fmt.Sprintf("echo hello > /%[1]s-sub/x; stat -c '%%u %%g' "+
			"/%[1]s/a/b/x; cat /%[1]s/a/b/x", volume)))
	}
}

// A mount of a sub-path keeps the content of the time when its container was started. The mount of
// the whole volume follows.
func testSubPathUpdate(t *testing.T, s *suite) {
	version := func(v string) {
		t.Helper()
		s.agent.PutFile(t, "sub-path-config.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "+
			"sub-path}\ndata: {key: "+v+"}\n")
	}
	version("old")
	c := Sh("c", Forever)
	c.VolumeMounts = []v1.VolumeMount{{Name: "config", MountPath: "/config"},
		{Name: "config", MountPath: "/key", SubPath: "key"}}
	pod := s.put(t, MakePod("sub-path-update", Main(c),
		Volume("config",
			v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{
				Name: "sub-path"}}})))
	s.agent.Await(t, pod, within, Running)
	both := func() string { return s.Exec(t, FullName(pod), "c", "sh", "-c", "echo $(cat /config/key) $(cat /key)") }
	assert.Equal(t, "old old\n", both())
	version("new")
	Eventually(t, within, "the new content", func() error {
		if got := both(); !strings.HasPrefix(got, "new ") {
			return errors.New(got)
		}
		return nil
	})
	assert.Equal(t, "new old\n", both())
	s.KillProcess(t, FullName(pod), "c")
	s.agent.Await(t, pod, within, Restarts("c", 1), Running)
	assert.Equal(t, "new new\n", both())
}

// The containers of a pod share a /dev/shm of the size that the runtime gives, and its contents are
// in no other pod.
func testSharedMemory(t *testing.T, s *suite) {
	pod := s.put(t, MakePod("shared-memory", Main(Sh("a", Forever), Sh("b", Forever))))
	other := s.put(t, MakePod("shared-memory-other", Main(Sh("c", Forever))))
	s.agent.Await(t, pod, within, Running)
	s.agent.Await(t, other, within, Running)
	sh := func(container, script string) string { return s.Exec(t, FullName(pod), container, "sh", "-c", script) }
	assert.Equal(t, "65536\n", sh("a", "df -k /dev/shm | awk 'NR==2 {print $2}'"), "KiB")
	assert.Contains(t, sh("a", "grep ' /dev/shm ' /proc/mounts"), "nosuid,nodev,noexec")
	sh("a", "echo shared > /dev/shm/x")
	assert.Equal(t, "shared\n", sh("b", "cat /dev/shm/x"))
	_, err := s.TryExec(t, FullName(other), "c", "test", "-e", "/dev/shm/x")
	assert.Error(t, err)
}

// Variables come from a file that an init container has written (KEP-3721).
func testEnvFiles(t *testing.T, s *suite) {
	from := func(name, path, key string, optional bool) v1.EnvVar {
		return v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "env",
			Path: path, Key: key, Optional: &optional}}}
	}
	write := Sh("write", `mkdir /env/dir && printf "# made here\nCOLOR='light green'\nOTHER='x'\n" > /env/dir/a.env`)
	write.VolumeMounts = []v1.VolumeMount{{Name: "env", MountPath: "/env"}}
	c := Sh("c", Forever)
	c.Env = []v1.EnvVar{
		from("COLOR", "dir/a.env", "COLOR", false), from("NO_KEY", "dir/a.env", "MISSING", true),
		from("NO_FILE", "none.env", "COLOR", true),
		{Name: "DERIVED", Value: "very $(COLOR)"},
	}
	missing := Sh("missing", Forever)
	missing.Env = []v1.EnvVar{from("COLOR", "dir/a.env", "MISSING", false)}
	pod := s.put(t, MakePod("env-files", Init(write), Main(c, missing),
		Volume("env", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})))
	name := FullName(pod)
	s.agent.Await(t, pod, within, Waiting("missing", "CreateContainerConfigError"), func(pod *v1.Pod) error {
		if message := Status(pod, "missing").State.Waiting.Message; !strings.Contains(message,
			`environment variable key "MISSING" not found in file "dir/a.env"`) {
			return errors.New(message)
		}
		if Status(pod, "c").State.Running == nil {
			return fmt.Errorf("the other container does not run: %+v", Status(pod, "c").State)
		}
		return nil
	})
	assert.Equal(t, "light green, very light green, unset, unset, no mount\n",
		s.Exec(t, name, "c", "sh", "-c",
			`echo "$COLOR, $DERIVED, ${NO_KEY-unset}, ${NO_FILE-unset}, $(test -e /env && echo mounted || echo no mount)"`))
}
