package translate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// sample is a container to change for a test.
func sample(change ...func(c *Container)) *Container {
	c := &Container{
		Pod: &Pod{
			Spec: &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "1234"},
				Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "busybox"}}},
			},
			Host: &runtime.Host{NodeName: "edge-7", IPs: []string{"192.0.2.1"}, PodLogsDir: "/var/log/pods"},
			Node: &Node{},
		},
		PodIPs: []string{"10.0.0.5"},
		Image:  Image{Ref: "sha256:1"},
	}
	c.Spec = &c.Pod.Spec.Spec.Containers[0]
	for _, f := range change {
		f(c)
	}
	return c
}

var optional = new(true)

// fakeObjects are a few objects, and how often they were asked for.
type fakeObjects struct{ calls int }

func (f *fakeObjects) ConfigMap(_ context.Context, namespace, name string) (*v1.ConfigMap, error) {
	f.calls++
	switch namespace + "/" + name {
	case "shop/conf":
		return &v1.ConfigMap{Data: map[string]string{"B": "conf-b", "A": "conf-a", "odd=key": "x"}}, nil
	case "shop/broken":
		return nil, errors.New("connection refused")
	}
	return nil, apierrors.NewNotFound(v1.Resource("configmap"), name)
}

func (f *fakeObjects) Secret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	f.calls++
	if namespace+"/"+name == "shop/pass" {
		return &v1.Secret{Data: map[string][]byte{"A": []byte("secret-a"), "Z": []byte("\xff")}}, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource("secret"), name)
}

func configMapKey(name, key string, optional *bool) *v1.EnvVarSource {
	return &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
		LocalObjectReference: v1.LocalObjectReference{Name: name}, Key: key, Optional: optional}}
}

func secretKey(name, key string, optional *bool) *v1.EnvVarSource {
	return &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
		LocalObjectReference: v1.LocalObjectReference{Name: name}, Key: key, Optional: optional}}
}

func fromConfigMap(prefix, name string, optional *bool) v1.EnvFromSource {
	return v1.EnvFromSource{Prefix: prefix, ConfigMapRef: &v1.ConfigMapEnvSource{
		LocalObjectReference: v1.LocalObjectReference{Name: name}, Optional: optional}}
}

func fromSecret(prefix, name string, optional *bool) v1.EnvFromSource {
	return v1.EnvFromSource{Prefix: prefix, SecretRef: &v1.SecretEnvSource{
		LocalObjectReference: v1.LocalObjectReference{Name: name}, Optional: optional}}
}

func TestEnvironment(t *testing.T) {
	objects := &fakeObjects{}
	in := sample(func(c *Container) {
		c.Objects = objects
		c.Edits.Env = []v1.EnvVar{{Name: "DEVICE", Value: "0"}, {Name: "A", Value: "hidden"},
			{Name: "DEVICE", Value: "1"}}
		c.Spec.EnvFrom = []v1.EnvFromSource{
			fromConfigMap("", "conf", nil), fromSecret("S_", "pass", nil),
			fromConfigMap("", "gone", optional), fromSecret("", "gone", optional), {},
		}
		c.Spec.Env = []v1.EnvVar{
			{Name: "B", Value: "$(A)+$(B)+$(S_A)+$(DEVICE)"},
			{Name: "C", ValueFrom: configMapKey("conf", "B", nil)},
			{Name: "D", ValueFrom: secretKey("pass", "A", nil)},
			{Name: "NO1", ValueFrom: configMapKey("conf", "nope", optional)},
			{Name: "NO2", ValueFrom: configMapKey("gone", "A", optional)},
			{Name: "NO3", ValueFrom: secretKey("gone", "A", optional)},
			{Name: "NOTHING", ValueFrom: &v1.EnvVarSource{}},
		}
		c.Spec.Args = []string{"$(DEVICE)", "$(A)", "$(B)"}
	})
	config, err := ContainerConfig(t.Context(), in)
	require.NoError(t, err)
	var got []string
	for _, kv := range config.Envs {
		got = append(got, kv.Key+"="+string(kv.Value))
	}
	assert.Equal(t, []string{
		"DEVICE=1", "A=conf-a", "B=conf-a+conf-b+secret-a+$(DEVICE)", "odd=key=x",
		"S_A=secret-a", "S_Z=\xff",
		"C=conf-b", "D=secret-a", "NOTHING=",
	}, got)
	assert.Equal(t, []string{"1", "conf-a", "conf-a+conf-b+secret-a+$(DEVICE)"}, config.Args)
	assert.Equal(t, 6, objects.calls, "what is there is read once")
}

// As in kubelet, variables of the container hide those of services, and may refer to them.
func TestEnvironmentOfServices(t *testing.T) {
	in := sample(func(c *Container) {
		c.Objects = &fakeObjects{}
		c.Edits.ServiceEnv = []v1.EnvVar{{Name: "WEB_SERVICE_HOST", Value: "10.0.0.1"}, {Name: "A", Value: "service"},
			{Name: "Z", Value: "$(A)"}}
		c.Spec.EnvFrom = []v1.EnvFromSource{fromConfigMap("", "conf", nil)}
		c.Spec.Env = []v1.EnvVar{{Name: "URL", Value: "http://$(WEB_SERVICE_HOST)/$(A)"},
			{Name: "WEB_SERVICE_HOST", Value: "own"}}
	})
	env, err := containerEnv(t.Context(), in)
	require.NoError(t, err)
	for name, want := range map[string]string{"URL": "http://10.0.0.1/conf-a", "WEB_SERVICE_HOST": "own",
		"A": "conf-a", "Z": "$(A)"} {
		got, _ := env.get(name)
		assert.Equal(t, want, got, name)
	}
}

// As in kubelet, the command, the arguments and the paths in volumes may refer to variables of device plugins, and the
// values of other variables may not, until something else has the name. Variables of services and of the container win.
func TestEnvironmentOfDevices(t *testing.T) {
	var path string
	in := sample(withMount(v1.VolumeMount{MountPath: "/data", SubPathExpr: "$(GPUS)-$(OWN)"}), func(c *Container) {
		c.SubPath = func(_ context.Context, req runtime.SubPath) (string, error) {
			path = req.Path
			return "/safe", nil
		}
		c.Edits.Env = []v1.EnvVar{{Name: "GPUS", Value: "0"}, {Name: "OWN", Value: "device"},
			{Name: "SERVICE", Value: "device"}}
		c.Edits.ServiceEnv = []v1.EnvVar{{Name: "SERVICE", Value: "service"}}
		c.Spec.Env = []v1.EnvVar{{Name: "ALL", Value: "$(GPUS) $(OWN) $(SERVICE)"}, {Name: "OWN", Value: "own"},
			{Name: "AFTER", Value: "$(OWN)"}}
		c.Spec.Command = []string{"$(GPUS)", "$(OWN)", "$(SERVICE)"}
		c.Spec.Args = []string{"$(ALL)"}
	})
	config, err := ContainerConfig(t.Context(), in)
	require.NoError(t, err)
	got := map[string]string{}
	for _, kv := range config.Envs {
		got[kv.Key] = string(kv.Value)
	}
	assert.Equal(t, map[string]string{"GPUS": "0", "SERVICE": "service", "OWN": "own", "AFTER": "own",
		"ALL": "$(GPUS) $(OWN) service"}, got)
	assert.Equal(t, []string{"0", "own", "service"}, config.Command)
	assert.Equal(t, []string{"$(GPUS) $(OWN) service"}, config.Args)
	assert.Equal(t, "0-own", path)
}

func TestEnvironmentErrors(t *testing.T) {
	some := &fakeObjects{}
	for name, tc := range map[string]struct {
		objects runtime.Objects
		from    v1.EnvFromSource
		source  *v1.EnvVarSource
		want    string
	}{
		"config map, no objects":           {source: configMapKey("conf", "A", nil), want: `couldn't get configMap shop/conf: this node has no source of config maps and secrets`},
		"config map, no objects, optional": {source: configMapKey("conf", "A", optional)},
		"secret, no objects":               {source: secretKey("pass", "A", nil), want: `couldn't get secret shop/pass: this node has no source of config maps and secrets`},
		"secret, no objects, optional":     {source: secretKey("pass", "A", optional)},
		"all, no objects":                  {from: fromConfigMap("", "conf", nil), want: `couldn't get configMap shop/conf: this node has no source of config maps and secrets`},
		"all secret, no objects":           {from: fromSecret("", "pass", nil), want: `couldn't get secret shop/pass: this node has no source of config maps and secrets`},
		"no such map":                      {objects: some, source: configMapKey("gone", "A", nil), want: `configmap "gone" not found`},
		"no such secret":                   {objects: some, from: fromSecret("", "gone", nil), want: `secret "gone" not found`},
		"no such key":                      {objects: some, source: configMapKey("conf", "x", nil), want: `couldn't find key x in ConfigMap shop/conf`},
		"no such key in secret":            {objects: some, source: secretKey("pass", "x", nil), want: `couldn't find key x in Secret shop/pass`},
		"failing, though optional":         {objects: some, source: configMapKey("broken", "x", optional), want: `couldn't get configMap shop/broken: connection refused`},
		"file": {source: &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "vol", Path: "a.env", Key: "A", Optional: optional}},
			want: `cannot find the volume "vol" referenced by FileKeyRef`},
		"version": {source: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{APIVersion: "v2", FieldPath: "metadata.name"}}, want: `unsupported pod version: v2`},
		"subscript": {source: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "spec.x['y']"}},
			want: `field label does not support subscript: spec.x['y']`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ContainerConfig(t.Context(), sample(func(c *Container) {
				c.Objects = tc.objects
				c.Spec.EnvFrom = []v1.EnvFromSource{tc.from}
				c.Spec.Env = []v1.EnvVar{{Name: "X", ValueFrom: tc.source}}
			}))
			if tc.want == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, tc.want)
			}
		})
	}
}

func TestDownwardAddresses(t *testing.T) {
	for name, tc := range map[string]struct {
		hostNetwork   bool
		hostIPs, pods []string
		path, want    string
	}{
		"first of two":               {hostIPs: []string{"192.0.2.1", "2001:db8::1"}, pods: []string{"10.0.0.5", "fd00::5"}, path: "status.podIPs", want: "10.0.0.5,fd00::5"},
		"the node's family first":    {hostIPs: []string{"2001:db8::1"}, pods: []string{"10.0.0.5", "fd00::5"}, path: "status.podIPs", want: "fd00::5,10.0.0.5"},
		"one of each":                {hostIPs: []string{"192.0.2.1"}, pods: []string{"10.0.0.5", "10.0.0.6", "fd00::5", "fd00::6"}, path: "status.podIPs", want: "10.0.0.5,fd00::5"},
		"only the other":             {hostIPs: []string{"192.0.2.1"}, pods: []string{"fd00::5"}, path: "status.podIP", want: "fd00::5"},
		"odd spelling":               {pods: []string{"FD00:0::5", "::ffff:10.0.0.5", "junk"}, path: "status.podIPs", want: "10.0.0.5,fd00::5"},
		"none yet":                   {path: "status.podIP", want: ""},
		"the host's network":         {hostNetwork: true, hostIPs: []string{"192.0.2.1"}, path: "status.podIP", want: "192.0.2.1"},
		"no address, none needed":    {path: "metadata.uid", want: "1234"},
		"old name of spec.nodeName":  {path: "spec.host", want: "edge-7"},
		"no address, the first of 0": {path: "status.hostIP", want: "the node has no IP address"},
	} {
		t.Run(name, func(t *testing.T) {
			in := sample(func(c *Container) {
				c.Pod.Spec.Spec.HostNetwork, c.Pod.Spec.Spec.NodeName = tc.hostNetwork, "edge-7"
				c.Pod.Host.IPs, c.PodIPs = tc.hostIPs, tc.pods
			})
			got, err := fieldValue(in, &v1.ObjectFieldSelector{FieldPath: tc.path})
			if err != nil {
				got = err.Error()
			}
			assert.Equal(t, tc.want, got)
		})
	}
}

// A small spec whose variables, arguments and paths grow without a bound.
func TestExpansionsAreBounded(t *testing.T) {
	tenfold := []v1.EnvVar{{Name: "V0", Value: "0123456789"}}
	for i := range 12 { // 10 TB
		tenfold = append(tenfold, v1.EnvVar{Name: fmt.Sprintf("V%d", i+1),
			Value: strings.Repeat(fmt.Sprintf("$(V%d)", i), 10)})
	}
	large := v1.EnvVar{Name: "LARGE", Value: strings.Repeat("x", 1<<20)}
	for name, test := range map[string]struct {
		change func(c *Container)
		err    string
	}{
		"variables of variables": {func(c *Container) { c.Spec.Env = tenfold }, `environment variable "V6": too long`},
		"command": {func(c *Container) {
			c.Spec.Env, c.Spec.Command = []v1.EnvVar{large}, slices.Repeat([]string{"$(LARGE)"}, 100_000)
		}, "command[6]: too long"},
		"args": {func(c *Container) {
			c.Spec.Env, c.Spec.Args = []v1.EnvVar{large}, []string{strings.Repeat("$(LARGE)", 100_000)}
		}, "args[0]: too long"},
		"subPathExpr": {func(c *Container) {
			c.Spec.Env = []v1.EnvVar{large}
			c.Volumes = map[string]runtime.Volume{"v": {HostPath: "/v"}}
			c.Spec.VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v",
				SubPathExpr: strings.Repeat("$(LARGE)", 100_000)}}
		}, `subPathExpr of volumeMount "v": too long`},
		"envFrom": {func(c *Container) {
			c.Objects = largeObject{}
			for i := range 100_000 {
				c.Spec.EnvFrom = append(c.Spec.EnvFrom, v1.EnvFromSource{
					Prefix:       fmt.Sprintf("P%d_", i),
					ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "large"}}})
			}
		}, `environment variable "P5_LARGE": too long`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ContainerConfig(t.Context(), sample(test.change))
			require.ErrorIs(t, err, podspec.ErrTooLong)
			assert.ErrorContains(t, err, test.err)
			assert.Less(t, len(err.Error()), 1000)
		})
	}
}

// largeObject has a config map of a megabyte.
type largeObject struct{ runtime.Objects }

func (largeObject) ConfigMap(context.Context, string, string) (*v1.ConfigMap, error) {
	return &v1.ConfigMap{Data: map[string]string{"LARGE": strings.Repeat("x", 1<<20)}}, nil
}
