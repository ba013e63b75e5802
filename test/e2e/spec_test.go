package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

func intOrString(n int) intstr.IntOrString { return intstr.FromInt(n) }

func ptr[T any](v T) *T { return &v }

func hostPath(path string, typ v1.HostPathType) v1.VolumeSource {
	return v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path, Type: &typ}}
}

func testBadManifests(t *testing.T, s *suite) {
	good := s.put(t, MakePod("bad-neighbour", Main(Sh("c", Forever))))
	edited := s.put(t, MakePod("bad-edit", Main(Sh("c", Forever))))
	before := s.agent.Await(t, good, within, Running)
	lastGood := s.agent.Await(t, edited, within, Running)

	manifest := func(spec string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: NAME, namespace: default}\nspec:\n" + spec
	}
	container := "  containers: [{name: c, image: 'busybox', command: [sleep, '1']}]\n"
	bad := map[string]string{
		"bad-syntax":     "apiVersion: v1\nkind: Pod\n  metadata: [",
		"bad-empty-spec": manifest("  containers: []\n"),
		"bad-kind":       "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: bad-kind}\n",
		"bad-name":       strings.Replace(manifest(container), "NAME", "Not_A_Name", 1),
		"bad-quantity":   manifest("  containers: [{name: c, image: busybox, resources: {limits: {memory: 12parsecs}}}]\n"),
		"bad-duplicate":  manifest("  containers: [{name: c, image: busybox}, {name: c, image: busybox}]\n"),
		"bad-mount":      manifest("  containers: [{name: c, image: busybox, volumeMounts: [{name: nowhere, mountPath: /x}]}]\n"),
		"bad-policy":     manifest("  restartPolicy: Sometimes\n" + container),
		"bad-huge":       manifest(container) + "#" + strings.Repeat("x", 10<<20+1),
	}
	for name, content := range bad {
		s.agent.PutFile(t, name+".yaml", strings.Replace(content, "NAME", name, 1))
	}
	// The name of a pod that another file has.
	s.agent.PutFile(t, "bad-twin.yaml", strings.Replace(manifest(container), "NAME", good.Name, 1))
	// The last good version of this one goes on.
	s.agent.PutFile(t, edited.Name+".yaml", "kind: Pod\nspec: {")

	for name := range bad {
		Eventually(t, within, "the log names "+name, func() error {
			log, err := os.ReadFile(s.agent.LogPath())
			if err == nil && !strings.Contains(string(log), name+".yaml") {
				err = fmt.Errorf("not named")
			}
			return err
		})
	}
	// The agent has seen them all, and is not impressed.
	after := s.put(t, MakePod("bad-after", Main(Sh("c", Forever))))
	s.agent.Await(t, after, within, Running)
	assert.Equal(t, before.Status.ContainerStatuses, s.agent.Await(t, good, within, Running).Status.ContainerStatuses)
	assert.Equal(t, lastGood.Status.ContainerStatuses,
		s.agent.Await(t, edited, within, Running).Status.ContainerStatuses)
	list, err := s.agent.Pods()
	require.NoError(t, err)
	for _, pod := range list.Items {
		_, isBad := bad[strings.TrimSuffix(pod.Name, "-"+NodeName)]
		assert.False(t, isBad, "the agent reports %s", pod.Name)
	}
	for name := range bad {
		require.NoError(t, os.Remove(filepath.Join(s.agent.Manifests, name+".yaml")))
	}
	require.NoError(t, os.Remove(filepath.Join(s.agent.Manifests, "bad-twin.yaml")))
	// A broken file that is mended counts again.
	s.agent.Put(t, MakePod("bad-edit", Main(Sh("mended", Forever))))
	s.agent.Await(t, edited, within, Running, func(pod *v1.Pod) error {
		if pod.Spec.Containers[0].Name != "mended" {
			return fmt.Errorf("not mended")
		}
		return nil
	})
}

func testVolumes(t *testing.T, s *suite) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte("content\n"), 0o644))
	c := Sh("c", "echo written > /data/sub/out; "+Forever)
	c.Env = []v1.EnvVar{{Name: "POD",
		ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}
	c.VolumeMounts = []v1.VolumeMount{
		{Name: "dir", MountPath: "/made"},
		{Name: "file", MountPath: "/file", ReadOnly: true},
		{Name: "disk", MountPath: "/disk"},
		{Name: "memory", MountPath: "/memory"},
		{Name: "disk", MountPath: "/data/sub", SubPath: "a/b"},
		{Name: "disk", MountPath: "/data/expr", SubPathExpr: "of/$(POD)"},
	}
	pod := s.put(t, MakePod("volumes", Main(c),
		Volume("dir", hostPath(filepath.Join(dir, "new/dir"), v1.HostPathDirectoryOrCreate)),
		Volume("file", hostPath(filepath.Join(dir, "file"), v1.HostPathFile)),
		Volume("disk", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}),
		Volume("memory", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory,
			SizeLimit: ptr(resource.MustParse("1Mi"))}}),
	))
	name := FullName(pod)
	before := s.agent.Await(t, pod, within, Running)
	sh := func(script string) string { return s.Exec(t, name, "c", "sh", "-c", script) }
	assert.Equal(t, "content\n", sh("cat /file"))
	_, err := s.TryExec(t, name, "c", "sh", "-c", "echo x > /file")
	assert.ErrorContains(t, err, "Read-only")
	sh("touch /made/x")
	assert.FileExists(t, filepath.Join(dir, "new/dir/x"))
	Eventually(t, within, "sub-path", func() error {
		_, err := s.TryExec(t, name, "c", "cat", "/disk/a/b/out")
		return err
	})
	sh("touch /data/expr/y && test -e /disk/of/" + name + "/y")
	assert.Contains(t, sh("grep ' /memory ' /proc/mounts"), "tmpfs")
	_, err = s.TryExec(t, name, "c", "sh", "-c", "head -c 2000000 /dev/zero > /memory/big")
	assert.Error(t, err, "a size limit of 1 MiB")

	// What is in an emptyDir lives as long as the pod, not the container.
	sh("echo kept > /disk/kept; rm /memory/big; echo kept > /memory/kept")
	s.KillProcess(t, name, "c")
	after := s.agent.Await(t, pod, within, Restarts("c", 1), Running)
	assert.Equal(t, before.UID, after.UID)
	assert.Equal(t, "kept\nkept\n", sh("cat /disk/kept /memory/kept"))

	s.remove(t, pod)
	s.agent.AwaitNoPodDirs(t, within)
	mounts, err := os.ReadFile("/proc/mounts")
	require.NoError(t, err)
	assert.NotContains(t, string(mounts), string(after.UID))
	assert.FileExists(t, filepath.Join(dir, "new/dir/x"), "a hostPath is the host's")
}

func testSubPathEscape(t *testing.T, s *suite) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	require.NoError(t, os.Mkdir(secret, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(secret, "key"), nil, 0o600))
	volume := filepath.Join(dir, "volume")
	require.NoError(t, os.Mkdir(volume, 0o755))
	require.NoError(t, os.Symlink(secret, filepath.Join(volume, "absolute")))
	require.NoError(t, os.Symlink("../secret", filepath.Join(volume, "relative")))
	for _, link := range []string{"absolute", "relative"} {
		c := Sh("c", Forever)
		c.VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v", SubPath: link}}
		pod := s.put(t, MakePod("escape-"+link, Main(c), Volume("v", hostPath(volume, v1.HostPathDirectory))))
		s.agent.Await(t, pod, within, Waiting("c", "CreateContainerConfigError"))
		assert.Empty(t, s.Containers(t, FullName(pod)))
	}
	pod := s.put(t, MakePod("hostpath-missing", Main(Sh("c", Forever)),
		Mounted("v", hostPath(filepath.Join(dir, "nowhere"), v1.HostPathDirectory))))
	s.agent.Await(t, pod, within, Phase(v1.PodPending))
	time.Sleep(time.Second)
	assert.Empty(t, s.Containers(t, FullName(pod)))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "nowhere"), 0o755))
}

// A pod waits for a volume of an unknown type if a container mounts it, and runs otherwise.
func testUnknownVolume(t *testing.T, s *suite) {
	nfs := v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: "127.0.0.1", Path: "/"}}
	unused := s.put(t, MakePod("volume-unused", Main(Sh("c", Forever)), Volume("unused", nfs)))
	s.agent.Await(t, unused, within, Running)
	pod := s.put(t, MakePod("volume-unknown", Main(Sh("c", Forever)),
		Mounted("exotic", nfs)))
	s.agent.Await(t, pod, within, Phase(v1.PodPending))
	time.Sleep(time.Second)
	got := s.agent.Await(t, pod, within, Phase(v1.PodPending))
	assert.Nil(t, Status(got, "c").State.Running)
	assert.Empty(t, s.Containers(t, FullName(pod)))
	Eventually(t, within, "the log says so", func() error {
		log, err := os.ReadFile(s.agent.LogPath())
		if err == nil && !strings.Contains(string(log), "exotic") {
			err = fmt.Errorf("no word of the volume")
		}
		return err
	})
}

func testEnvironment(t *testing.T, s *suite) {
	field := func(path string) *v1.EnvVarSource {
		return &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: path}}
	}
	c := Sh("c", `echo "$0 $@" > /dev/termination-log; `+Forever)
	c.Command = append(c.Command, "$(BASE)-$(MISSING)-$$(BASE)")
	c.Args = []string{"arg-$(NAME)"}
	c.WorkingDir = "/tmp"
	c.TerminationMessagePath = "/dev/termination-log"
	c.Env = []v1.EnvVar{
		{Name: "BASE", Value: "base"},
		{Name: "DERIVED", Value: "$(BASE)/x"},
		{Name: "NAME", ValueFrom: field("metadata.name")},
		{Name: "UID", ValueFrom: field("metadata.uid")},
		{Name: "LABEL", ValueFrom: field("metadata.labels['color']")},
		{Name: "NODE", ValueFrom: field("spec.nodeName")},
		{Name: "IP", ValueFrom: field("status.podIP")},
		{Name: "MEMORY", ValueFrom: &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.memory", Divisor: resource.MustParse("1Mi")}}},
		{Name: "CPU", ValueFrom: &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "requests.cpu", Divisor: resource.MustParse("1m")}}},
	}
	c.Resources = v1.ResourceRequirements{
		Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi"),
			v1.ResourceCPU: resource.MustParse("500m")},
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")},
	}
	pod := MakePod("environment", Main(c))
	pod.Labels = map[string]string{"color": "green"}
	pod.Spec.Hostname = "myhost"
	pod.Spec.HostAliases = []v1.HostAlias{{IP: "10.1.2.3", Hostnames: []string{"alias.example"}}}
	pod.Spec.DNSPolicy = v1.DNSNone
	pod.Spec.DNSConfig = &v1.PodDNSConfig{Nameservers: []string{"10.9.9.9"}, Searches: []string{"kit.example"}}
	s.put(t, pod)
	got := s.agent.Await(t, pod, within, Running)
	name := FullName(pod)
	sh := func(script string) string { return strings.TrimSpace(s.Exec(t, name, "c", "sh", "-c", script)) }

	assert.Equal(t, fmt.Sprintf("base/x %s %s green %s %s 64 100 1 /tmp", name, got.UID, NodeName, got.Status.PodIP),
		sh("echo $DERIVED $NAME $UID $LABEL $NODE $IP $MEMORY $CPU $VERSION $PWD"))
	assert.Equal(t, "base-$(MISSING)-$(BASE) arg-"+name, sh("cat /dev/termination-log"))
	assert.Equal(t, "myhost", sh("hostname"))
	assert.Contains(t, sh("cat /etc/hosts"), "10.1.2.3\talias.example")
	assert.Contains(t, sh("cat /etc/resolv.conf"), "nameserver 10.9.9.9")
	assert.Contains(t, sh("cat /etc/resolv.conf"), "search kit.example")
	assert.Equal(t, v1.PodQOSBurstable, got.Status.QOSClass)
	assert.Equal(t, "67108864", sh("cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max "+
		"2>/dev/null; true"))

	s.KillProcess(t, name, "c")
	after := s.agent.Await(t, pod, within, Restarts("c", 1), Running)
	assert.Contains(t, Status(after, "c").LastTerminationState.Terminated.Message, "arg-"+name)
}

func testSecurity(t *testing.T, s *suite) {
	user := Sh("user", Forever)
	user.SecurityContext = &v1.SecurityContext{RunAsUser: ptr(int64(1234)), RunAsGroup: ptr(int64(2345)),
		ReadOnlyRootFilesystem: ptr(true), AllowPrivilegeEscalation: ptr(false)}
	caps := Sh("caps", Forever)
	caps.SecurityContext = &v1.SecurityContext{Capabilities: &v1.Capabilities{Drop: []v1.Capability{"ALL"},
		Add: []v1.Capability{"NET_BIND_SERVICE"}}}
	image := Sh("image", Forever)
	image.Image = s.Registry.Image("busybox:user")
	image.SecurityContext = &v1.SecurityContext{RunAsNonRoot: ptr(true)}
	pod := MakePod("security", Main(user, caps, image))
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr(int64(3456)), SupplementalGroups: []int64{4567}}
	pod.Spec.ShareProcessNamespace = ptr(true)
	s.put(t, pod)
	s.agent.Await(t, pod, within, Running)
	name := FullName(pod)
	sh := func(container, script string) string {
		return strings.TrimSpace(s.Exec(t, name, container, "sh", "-c", script))
	}
	assert.Equal(t, "1234 2345", sh("user", "echo $(id -u) $(id -g)"))
	assert.Contains(t, sh("user", "id -G"), "4567")
	assert.Equal(t, "NoNewPrivs:\t1", sh("user", "grep NoNewPrivs /proc/self/status"))
	_, err := s.TryExec(t, name, "user", "sh", "-c", "touch /tmp/x")
	assert.ErrorContains(t, err, "Read-only")
	assert.Equal(t, "CapEff:\t0000000000000400", sh("caps", "grep CapEff /proc/self/status"))
	assert.Equal(t, "1000", sh("image", "id -u"))
	assert.GreaterOrEqual(t, strings.Count(sh("caps", "ps"), "trap"), 3, "all containers' processes are seen")

	root := Sh("c", Forever)
	root.SecurityContext = &v1.SecurityContext{RunAsNonRoot: ptr(true)}
	refused := s.put(t, MakePod("security-root", Main(root, Sh("other", Forever))))
	s.agent.Await(t, refused, within, Waiting("c", "CreateContainerConfigError"), func(pod *v1.Pod) error {
		if Status(pod, "other").State.Running == nil {
			return fmt.Errorf("the other container does not run")
		}
		return nil
	})
}

func testHostNetwork(t *testing.T, s *suite) {
	pod := MakePod("hostnetwork", Main(Sh("c", Forever)))
	pod.Spec.HostNetwork, pod.Spec.HostPID = true, true
	s.put(t, pod)
	got := s.agent.Await(t, pod, within, Running)
	assert.Equal(t, got.Status.HostIP, got.Status.PodIP)
	assert.Contains(t, s.Exec(t, FullName(pod), "c", "ip", "link"), "kk0")
	assert.NotEqual(t, "1\n", s.Exec(t, FullName(pod), "c", "sh", "-c", "echo $PPID"))
}

func testHostPort(t *testing.T, s *suite) {
	web := Sh("web", "mkdir /www && echo served > /www/index.html && exec httpd -f -p 80 -h /www")
	web.Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 8088}}
	pod := s.put(t, MakePod("hostport", Main(web)))
	s.agent.Await(t, pod, within, Running)
	client := http.Client{Transport: &http.Transport{DialContext: s.Net.DialContext, DisableKeepAlives: true},
		Timeout: 5 * time.Second}
	get := func() error {
		resp, err := client.Get("http://127.0.0.1:8088/")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if body, _ := io.ReadAll(resp.Body); string(body) != "served\n" {
			return fmt.Errorf("got %q", body)
		}
		return nil
	}
	Eventually(t, within, "host port answers", get)
	s.remove(t, pod)
	assert.Error(t, get(), "the host port is closed with the pod")
}

func testImagePolicies(t *testing.T, s *suite) {
	with := func(name, image string, policy v1.PullPolicy) *v1.Pod {
		c := Sh("c", Forever)
		c.Image, c.ImagePullPolicy = image, policy
		return s.put(t, MakePod("image-"+name, Main(c)))
	}
	here := s.Registry.Image
	never := with("never", here("busybox:absent"), v1.PullNever)
	invalid := with("invalid", "UPPER case", v1.PullIfNotPresent)
	missing := with("missing", here("busybox:absent"), v1.PullIfNotPresent)
	private := with("private", here("private/busybox:1"), v1.PullIfNotPresent)
	s.agent.Await(t, never, within, Waiting("c", "ErrImageNeverPull"))
	s.agent.Await(t, invalid, within, Waiting("c", "InvalidImageName"))
	for _, pod := range []*v1.Pod{missing, private} {
		got := s.agent.Await(t, pod, within, Phase(v1.PodPending), func(pod *v1.Pod) error {
			if w := Status(pod, "c").State.Waiting; w == nil || w.Reason != "ErrImagePull" &&
				w.Reason != "ImagePullBackOff" {
				return fmt.Errorf("%+v", w)
			}
			return nil
		})
		assert.NotEmpty(t, Status(got, "c").State.Waiting.Message)
	}

	count := s.Registry.Pulls("busybox:1")
	present := with("present", here("busybox:1"), v1.PullIfNotPresent)
	got := s.agent.Await(t, present, within, Running)
	assert.Equal(t, here("busybox:1"), Status(got, "c").Image)
	assert.Contains(t, Status(got, "c").ImageID, "sha256:")
	assert.Equal(t, count, s.Registry.Pulls("busybox:1"), "present, so not pulled")

	count = s.Registry.Pulls("busybox:user")
	always := with("always", here("busybox:user"), v1.PullAlways)
	s.agent.Await(t, always, within, Running)
	first := s.Registry.Pulls("busybox:user")
	assert.Greater(t, first, count)
	s.KillProcess(t, FullName(always), "c")
	s.agent.Await(t, always, within, Restarts("c", 1), Running)
	assert.Greater(t, s.Registry.Pulls("busybox:user"), first, "pulled again for the restart")
}

func testImageBackOff(t *testing.T, s *suite) {
	s.Registry.SetBroken("busybox:flaky", true)
	c := Sh("c", Forever)
	c.Image = s.Registry.Image("busybox:flaky")
	pod := s.put(t, MakePod("image-backoff", Main(c, Sh("other", Forever))))
	s.agent.Await(t, pod, within, Waiting("c", "ImagePullBackOff"), func(pod *v1.Pod) error {
		if Status(pod, "other").State.Running == nil {
			return fmt.Errorf("the other container does not run")
		}
		return nil
	})
	s.Registry.SetBroken("busybox:flaky", false)
	got := s.agent.Await(t, pod, within, Running)
	assert.Zero(t, Status(got, "c").RestartCount)
}

// podUID is a UID for a manifest that gives one.
func podUID(i int) types.UID {
	return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i))
}
