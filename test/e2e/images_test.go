package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// An image that was pulled with the secret of one pod is no image of all pods (KEP-2535), also after a restart of the
// agent.
func TestRightToAnImage(t *testing.T) {
	t.Parallel()
	c := NewCluster(t)
	c.Preload(t, "pause:1")
	a := c.StartAgent(t, AgentOptions{})
	image := c.Registry.Image("private/busybox:1")
	secret := func(name, password string) {
		auth := fmt.Sprintf(`{"auths":{%q:{"username":%q,"password":%q}}}`,
			image[:len(image)-len("/private/busybox:1")], RegistryUser, password)
		putObject(t, a.Manifests, "secret-"+name+".yaml", fmt.Sprintf("apiVersion: v1\nkind: Secret\ntype: "+
			"kubernetes.io/dockerconfigjson\nmetadata: {name: %s}\nstringData: {.dockerconfigjson: %q}\n", name, auth))
	}
	secret("first", RegistryPassword)
	secret("same", RegistryPassword)
	secret("bad", "guessed")
	put := func(name, secret string, policy v1.PullPolicy) *v1.Pod {
		pod := MakePod(name, Main(Sh("main", Forever)))
		pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = image, policy
		if secret != "" {
			pod.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: secret}}
		}
		a.Put(t, pod)
		return pod
	}
	refused := func(pod *v1.Pod) error {
		if Waiting("main", "ErrImagePull")(pod) == nil {
			return nil
		}
		return Waiting("main", "ImagePullBackOff")(pod)
	}
	owner := put("owner", "first", v1.PullIfNotPresent)
	a.Await(t, owner, within, Running)
	pulls := c.Registry.Pulls("private/busybox:1")

	a.Await(t, put("without", "", v1.PullIfNotPresent), within, refused)
	a.Await(t, put("without-never", "", v1.PullNever), within, Waiting("main", "ErrImageNeverPull"))
	a.Await(t, put("guesses", "bad", v1.PullIfNotPresent), within, refused)
	a.Await(t, put("same", "same", v1.PullIfNotPresent), within, Running)
	a.Await(t, put("same-never", "same", v1.PullNever), within, Running)
	assert.Equal(t, pulls, c.Registry.Pulls("private/busybox:1"), "equal credentials need no pull")

	// The records are kubelet's.
	files, err := filepath.Glob(filepath.Join(a.Root, "image_manager", "pulled", "*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	data, err := os.ReadFile(files[0])
	require.NoError(t, err)
	var record struct {
		Kind              string
		CredentialMapping map[string]struct{ KubernetesSecrets []struct{ Name string } }
	}
	require.NoError(t, json.Unmarshal(data, &record))
	assert.Equal(t, "ImagePulledRecord", record.Kind)
	assert.Len(t, record.CredentialMapping, 1)
	assert.NotContains(t, string(data), RegistryPassword)

	a.Kill(t)
	a.Start(t)
	a.WaitHealthy(t)
	a.Await(t, put("later", "first", v1.PullIfNotPresent), within, Running)
	assert.Equal(t, pulls, c.Registry.Pulls("private/busybox:1"))
	a.Await(t, put("later-without", "", v1.PullIfNotPresent), within, refused)
	a.Await(t, owner, within, Running)
}

// Pods that need the same image at the same time share a pull.
func TestOnePullForManyPods(t *testing.T) {
	t.Parallel()
	const pods = 20
	c := NewCluster(t)
	c.Preload(t, "pause:1")
	a := c.StartAgent(t, AgentOptions{})
	one := MakePod("one", Main(Sh("main", Forever)))
	one.Spec.Containers[0].Image = c.Registry.Image("busybox:2")
	a.Put(t, one)
	a.Await(t, one, within, Running)

	release := c.Registry.Hold("busybox:held")
	defer release()
	var all []*v1.Pod
	for i := range pods {
		pod := MakePod(fmt.Sprintf("many-%d", i), Main(Sh("main", Forever)))
		pod.Spec.Containers[0].Image = c.Registry.Image("busybox:held")
		a.Put(t, pod)
		all = append(all, pod)
	}
	Eventually(t, within, "all pods pull", func() error {
		if c.Registry.Held("busybox:held") == 0 {
			return fmt.Errorf("the layer was not requested")
		}
		lines, err := a.AnyOf("reason=Pulling")
		if n := len(lines) - 1; n < pods { // without that of the first pod
			return errors.Join(err, fmt.Errorf("%d of %d pods pull", n, pods))
		}
		return nil
	})
	release()
	for _, pod := range all {
		a.Await(t, pod, within, Running)
	}
	assert.Equal(t, c.Registry.Pulls("busybox:2"), c.Registry.Pulls("busybox:held"))
	assert.Equal(t, 1, c.Registry.Held("busybox:held"))
}
