package e2e

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// putObject writes a file of objects, in one step and for its owner only.
func putObject(t *testing.T, dir, name, content string) {
	t.Helper()
	temp := filepath.Join(dir, ".new-"+name)
	require.NoError(t, os.WriteFile(temp, []byte(content), 0o600))
	require.NoError(t, os.Rename(temp, filepath.Join(dir, name)))
}

func secretDB(password string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: db}\nstringData: {password: %q}\n", password)
}

// passwordTo is a container that writes the variable PASSWORD, which comes from the
// secret, to a file in /shared, and ends when there is a file "end".
func passwordTo(file string) v1.Container {
	c := Sh("main", fmt.Sprintf("echo $PASSWORD >> /shared/%s; while [ ! -e /shared/end ]; do sleep 0.1; done; rm "+
		"/shared/end", file))
	c.Env = []v1.EnvVar{{Name: "PASSWORD", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
		LocalObjectReference: v1.LocalObjectReference{Name: "db"}, Key: "password",
	}}}}
	return c
}

// waitsFor waits until the container cannot be configured for the reason.
func waitsFor(container, message string) Condition {
	return func(pod *v1.Pod) error {
		if err := Waiting(container, "CreateContainerConfigError")(pod); err != nil {
			return err
		}
		if got := Status(pod, container).State.Waiting.Message; got != message {
			return fmt.Errorf("container %s waits with message %q, not %q", container, got, message)
		}
		return nil
	}
}

// TestObjects has secrets in the directory of the manifests.
func TestObjects(t *testing.T) {
	t.Parallel()
	c := NewCluster(t)
	c.Preload(t, "pause:1", "busybox:1")
	s := &suite{Cluster: c, agent: c.StartAgent(t, AgentOptions{})}
	t.Run("all", func(t *testing.T) {
		t.Run("Environment", func(t *testing.T) { t.Parallel(); testSecretEnvironment(t, s) })
		t.Run("Files", func(t *testing.T) { t.Parallel(); testFiles(t, s) })
		t.Run("PullSecret", func(t *testing.T) { t.Parallel(); testPullSecret(t, s) })
	})
}

// A container waits for its secret, starts soon after it appears, is not touched
// when it changes, and has the new value when it starts again. How soon is asserted
// in virtual time, by TestAContainerWaitsForItsSecret of the root package.
func testSecretEnvironment(t *testing.T, s *suite) {
	dir := t.TempDir()
	got := func() string { data, _ := os.ReadFile(filepath.Join(dir, "out")); return string(data) }
	pod := s.put(t, MakePod("secret-env", Main(passwordTo("out")), Shared(dir)))
	s.agent.Await(t, pod, within, waitsFor("main", `secret "db" not found`))
	putObject(t, s.agent.Manifests, "db.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: db}\n")
	s.agent.Await(t, pod, within, waitsFor("main", "couldn't find key password in Secret default/db"))
	time.Sleep(15 * time.Second) // the back-off of the pod has grown to more than what follows takes
	putObject(t, s.agent.Manifests, "db.yaml", secretDB("hunter-1"))
	begin := time.Now()
	s.agent.Await(t, pod, within, Running)
	t.Logf("it runs %v after its secret is there", time.Since(begin).Round(time.Millisecond))
	Eventually(t, within, "the first value", func() error {
		if got() != "hunter-1\n" {
			return fmt.Errorf("wrote %q", got())
		}
		return nil
	})

	putObject(t, s.agent.Manifests, "db.yaml", secretDB("hunter-2"))
	time.Sleep(3 * time.Second)
	assert.Equal(t, "hunter-1\n", got())
	assert.Zero(t, Status(s.agent.Await(t, pod, within, Running), "main").RestartCount, "what runs is not touched")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "end"), nil, 0o600))
	s.agent.Await(t, pod, within, Restarts("main", 1), Running)
	Eventually(t, within, "the second value", func() error {
		if got() != "hunter-1\nhunter-2\n" {
			return fmt.Errorf("wrote %q", got())
		}
		return nil
	})
	// What it is stands in no log, not even if it is wrong.
	putObject(t, s.agent.Manifests, "db.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: db}\ndata: "+
		"{password: hunter-3}\n")
	var log []byte
	Eventually(t, within, "the problem is told", func() (err error) {
		if log, err = os.ReadFile(s.agent.LogPath()); err == nil && !strings.Contains(string(log),
			"data[password]: Invalid value: must be base64") {
			err = errors.New("it is not in the log")
		}
		return err
	})
	assert.NotContains(t, string(log), "hunter-")
	assert.NotContains(t, string(log), base64.StdEncoding.EncodeToString([]byte("hunter-2")))
}

// A pod that reads its config map in a loop sees each version soon, and never a mixture of
// two. Its secret is in memory, and its volumes are gone with it.
func testFiles(t *testing.T, s *suite) {
	dir := t.TempDir()
	version := func(i int) string {
		return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf}\ndata: {a: \"%[1]d\", b: "+
			"\"%[1]d\"}\n", i)
	}
	c := Sh("main", `grep -c ' /secret tmpfs ro' /proc/mounts > /shared/memory
cat /secret/key > /shared/secret
while :; do
  cd -P /conf/..data && a=$(cat a) && b=$(cat b) || { cd /; continue; }
  [ "$a" = "$b" ] || echo "$a $b" >> /shared/mixture
  cd /; echo "$a" > /shared/seen.new && mv /shared/seen.new /shared/seen
done`)
	c.VolumeMounts = []v1.VolumeMount{{Name: "conf", MountPath: "/conf"}, {Name: "secret", MountPath: "/secret"}}
	pod := MakePod("files", Main(c), Shared(dir))
	pod.Spec.Volumes = append(pod.Spec.Volumes,
		v1.Volume{Name: "conf",
			VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
				LocalObjectReference: v1.LocalObjectReference{Name: "conf"}}}},
		v1.Volume{Name: "secret", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "files"}}},
	)
	s.put(t, pod)
	s.agent.Await(t, pod, within, Waiting("main", "ContainerCreating"))
	putObject(t, s.agent.Manifests, "files-secret.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: "+
		"files}\nstringData: {key: value}\n")
	putObject(t, s.agent.Manifests, "files-conf.yaml", version(0))
	s.agent.Await(t, pod, within, Running)
	read := func(file string) string {
		data, _ := os.ReadFile(filepath.Join(dir, file))
		return strings.TrimSpace(string(data))
	}
	var longest time.Duration
	for i := range 20 {
		putObject(t, s.agent.Manifests, "files-conf.yaml", version(i))
		began := time.Now()
		Eventually(t, soon, "the new version", func() error {
			if got := read("seen"); got != fmt.Sprint(i) {
				return fmt.Errorf("it is %q, not %d", got, i)
			}
			return nil
		})
		longest = max(longest, time.Since(began))
	}
	t.Logf("the longest of 20 changes took %v", longest.Round(time.Millisecond))
	assert.NoFileExists(t, filepath.Join(dir, "mixture"))
	assert.Equal(t, "1", read("memory"))
	assert.Equal(t, "value", read("secret"))
}

// An image that takes credentials comes with those of the pod's pull secret.
func testPullSecret(t *testing.T, s *suite) {
	image := s.Registry.Image("private/busybox:1")
	auth := fmt.Sprintf(`{"auths":{%q:{"username":%q,"password":%q}}}`, image[:len(image)-len("/private/busybox:1")],
		RegistryUser, RegistryPassword)
	putObject(t, s.agent.Manifests, "pull.yaml", fmt.Sprintf("apiVersion: v1\nkind: Secret\ntype: "+
		"kubernetes.io/dockerconfigjson\nmetadata: {name: pull}\nstringData: {.dockerconfigjson: %q}\n", auth))
	container := Sh("main", Forever)
	container.Image = image
	without := s.put(t, MakePod("pull-without", Main(container)))
	s.agent.Await(t, without, within, func(pod *v1.Pod) error {
		if Waiting("main", "ErrImagePull")(pod) == nil {
			return nil
		}
		return Waiting("main", "ImagePullBackOff")(pod)
	})
	with := MakePod("pull-with", Main(container))
	with.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "pull"}}
	s.put(t, with)
	s.agent.Await(t, with, within, Running)
}

// TestObjectsPath has secrets in a directory of their own, and an agent without a
// container runtime.
func TestObjectsPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	objects := filepath.Join(dir, "objects")
	a := StartProcessAgent(t, AgentOptions{Args: []string{"--objects-path", objects}})
	container := passwordTo("out")
	container.Command[2] = fmt.Sprintf("echo $PASSWORD > %s/out; exec sleep 2147483647", dir)
	pod := MakePod("secret-env", Main(container))
	a.Put(t, pod)
	a.PutFile(t, "db.yaml", secretDB("not read here"))
	a.Await(t, pod, within,
		waitsFor("main", "couldn't get secret default/db: secrets and config maps have not been read yet"))
	require.NoError(t, os.Mkdir(objects, 0o700))
	a.Await(t, pod, within, waitsFor("main", `secret "db" not found`))
	putObject(t, objects, "db.yaml", secretDB("from its own place"))
	a.Await(t, pod, within, Running)
	Eventually(t, within, "the value", func() error {
		if data, _ := os.ReadFile(filepath.Join(dir, "out")); string(data) != "from its own place\n" {
			return fmt.Errorf("wrote %q", data)
		}
		return nil
	})
	log, err := os.ReadFile(a.LogPath())
	require.NoError(t, err)
	assert.Contains(t, string(log), `kind: Unsupported value: \"Secret\"`)
	a.Remove(t, pod)
	a.AwaitGone(t, within, pod)
}
