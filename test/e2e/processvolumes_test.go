package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// nobody is a user without privileges.
const nobody = 65534

// configAndSecret are the objects of the pods in a version.
func configAndSecret(version string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: files}, data: {key: config-%[1]s}}
- {apiVersion: v1, kind: Secret, metadata: {name: files}, stringData: {key: secret-%[1]s}}
`, version)
}

// filesPod is a pod that has the objects, its labels and a directory as volumes. dir is what its
// mount paths begin with, and mode how its processes find the volumes.
func filesPod(i int, name, dir, mode string) *v1.Pod {
	c := Sh("c", Forever)
	for _, volume := range []string{"config", "secret", "info", "all", "data"} {
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: volume, MountPath: dir + "/" + volume})
	}
	c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: "data", MountPath: dir + "/sub", SubPath: "a/b"})
	ref := v1.LocalObjectReference{Name: "files"}
	labels := v1.DownwardAPIVolumeFile{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}}
	pod := MakePod(name, Grace(1), Main(c),
		Volume("config", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: ref}}),
		Volume("secret",
			v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "files", DefaultMode: ptr(int32(0o400))}}),
		Volume("info",
			v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{labels}}}),
		Volume("all", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: ref, Items: []v1.KeyToPath{{Key: "key", Path: "config"}}}},
			{Secret: &v1.SecretProjection{LocalObjectReference: ref, Items: []v1.KeyToPath{{Key: "key", Path: "deep/secret"}}}},
			{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{labels}}},
		}}}),
		Volume("data", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}))
	pod.UID = podUID(i)
	pod.Labels = map[string]string{"version": "1"}
	pod.Annotations = map[string]string{"process.kubeletkit.io/mounts": mode}
	return pod
}

// An agent that is not root and may mount nothing gives the processes of its pods the files of
// objects and directories: by variables, or by links. It updates the files, and leaves nothing.
func TestProcessVolumesNotAsRoot(t *testing.T) {
	t.Parallel()
	a := StartProcessAgent(t, AgentOptions{UID: nobody})
	a.PutFile(t, "objects.yaml", configAndSecret("1"))
	links := filepath.Join(filepath.Dir(a.Root), "links")
	require.NoError(t, os.Mkdir(links, 0o700))
	require.NoError(t, os.Chown(links, nobody, nobody))
	pods := []*v1.Pod{filesPod(1, "by-env", "", "env"), filesPod(2, "by-link", links, "link")}
	at := map[string]string{"by-env": "$MOUNT_%s", "by-link": links + "/%s"}
	path := func(pod *v1.Pod, volume string) string {
		name := volume
		if pod.Name == "by-env" {
			name = strings.ToUpper(volume)
		}
		return fmt.Sprintf(at[pod.Name], name)
	}
	sh := func(pod *v1.Pod, script string) (string, error) {
		return a.Runtime.TryExec(t, FullName(pod), "c", "sh", "-c", script)
	}
	files := func(pod *v1.Pod) string {
		return fmt.Sprintf("cat %s/key; echo; cat %s/key; echo; cat %s/labels; echo; cd %s && cat config; echo; cat "+
			"deep/secret; echo; cat labels",
			path(pod, "config"), path(pod, "secret"), path(pod, "info"), path(pod, "all"))
	}
	have := func(pod *v1.Pod, version string) {
		t.Helper()
		began := time.Now()
		want := fmt.Sprintf(
			"config-%[1]s\nsecret-%[1]s\nversion=\"%[1]s\"\nconfig-%[1]s\nsecret-%[1]s\nversion=\"%[1]s\"", version)
		Eventually(t, within, "the files of version "+version, func() error {
			if got, err := sh(pod, files(pod)); err != nil || got != want {
				return fmt.Errorf("%q (%v)", got, err)
			}
			return nil
		})
		t.Logf("%s has version %s after %v", pod.Name, version, time.Since(began).Round(time.Millisecond))
	}
	a.Put(t, pods...)
	for _, pod := range pods {
		a.Await(t, pod, within, Running)
		have(pod, "1")
		got, err := sh(pod, fmt.Sprintf("id -u; stat -L -c %%a %s/key; echo hello > %s/file && cat %s/a/b/file",
			path(pod, "secret"), path(pod, "sub"), path(pod, "data")))
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprintf("%d\n400\nhello\n", nobody), got)
		assert.FileExists(t, filepath.Join(a.Root, "pods", string(pod.UID),
			"volumes/kubernetes.io~empty-dir/data/a/b/file"))
		// as Go does
		_, err = sh(pod, fmt.Sprintf("cd %s && mkdir -p mod/cache && touch mod/cache/f && chmod -R a-w mod",
			path(pod, "data")))
		require.NoError(t, err)
	}
	lines, err := a.AnyOf("Secrets and tokens of pods are on disk")
	require.NoError(t, err)
	assert.Len(t, lines, 1)

	// The next agent goes on with the files that are there.
	a.Kill(t)
	a.Start(t)
	a.WaitHealthy(t)
	a.PutFile(t, "objects.yaml", configAndSecret("2"))
	for _, pod := range pods {
		pod.Labels["version"] = "2"
	}
	a.Put(t, pods...)
	for _, pod := range pods {
		have(pod, "2")
		assert.Zero(t, Status(a.Await(t, pod, within, Running), "c").RestartCount)
	}
	assert.Empty(t, mountsIn(t, a.Root))
	a.Remove(t, pods...)
	a.AwaitGone(t, within, pods...)
	a.AwaitNoPodDirs(t, within)
	for _, dir := range []string{links, filepath.Join(a.Root, "pods"), filepath.Join(a.Root, "process/links")} {
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Empty(t, left, dir)
	}
}

// What such an agent cannot have is refused, with an event that says what to do or what is
// missing. The other pods run.
func TestProcessVolumesRefused(t *testing.T) {
	t.Parallel()
	a := StartProcessAgent(t, AgentOptions{UID: nobody})
	empty := v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}
	link := func(pod *v1.Pod) { pod.Annotations = map[string]string{"process.kubeletkit.io/mounts": "link"} }
	env := func(pod *v1.Pod) { pod.Annotations = map[string]string{"process.kubeletkit.io/mounts": "env"} }
	group := func(pod *v1.Pod) {
		env(pod)
		pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr(int64(nobody - 1))}
	}
	type refusal struct {
		source  v1.VolumeSource
		option  Option
		reason  string
		message string
	}
	refused := map[string]refusal{
		"path":   {empty, Grace(1), "CreateContainerError", "cannot be mounted at /v: set mountPath to the host's path; or set the annotation process.kubeletkit.io/mounts on the pod to env"},
		"link":   {empty, link, "CreateContainerError", "a link to its volume at /v:"},
		"image":  {v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "some/image:1"}}, env, "CreateContainerError", "image some/image:1 cannot be mounted at /v"},
		"memory": {v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}, env, "ContainerCreating", "mounting a tmpfs: operation not permitted; the agent needs CAP_SYS_ADMIN for it"},
		"group":  {empty, group, "ContainerCreating", "giving the volume to fsGroup 65533: lchown "},
		"nfs":    {v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: "127.0.0.1", Path: "/"}}, env, "ContainerCreating", "nfs"},
	}
	var pods []*v1.Pod
	for name, r := range refused {
		pod := MakePod("refused-"+name, Grace(1), Main(Sh("c", Forever)), r.option, func(pod *v1.Pod) {
			Volume("v", r.source)(pod)
			pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
		})
		pod.UID = types.UID("refused-" + name)
		pods = append(pods, pod)
	}
	other := MakePod("other", Grace(1), env, Main(Sh("c", Forever)), Mounted("v", empty))
	a.Put(t, append(pods, other)...)
	for _, pod := range pods {
		r := refused[strings.TrimPrefix(pod.Name, "refused-")]
		a.Await(t, pod, within, Waiting("c", r.reason), func(pod *v1.Pod) error {
			if message := Status(pod, "c").State.Waiting.Message; !strings.Contains(message, r.message) {
				return fmt.Errorf("message %q", message)
			}
			return nil
		})
		Eventually(t, within, "event of "+pod.Name, func() error {
			lines, err := a.AnyOf("pod=default/" + FullName(pod) + "(")
			if err != nil {
				return err
			}
			for _, line := range lines {
				if strings.Contains(line, "reason=") && strings.Contains(line, r.message) {
					return nil
				}
			}
			return fmt.Errorf("%d lines about the pod: %s", len(lines), strings.Join(lines, ""))
		})
	}
	a.Await(t, other, within, Running)
	pods = append(pods, other)
	a.Remove(t, pods...)
	a.AwaitGone(t, within, pods...)
	a.AwaitNoPodDirs(t, within)
	left, err := os.ReadDir(filepath.Join(a.Root, "pods"))
	require.NoError(t, err)
	assert.Empty(t, left)
	assert.NoFileExists(t, "/v")
}
