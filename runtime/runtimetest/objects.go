package runtimetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// objects are the secret "pass" and the config map "conf" of the namespace of the suite. If err is
// not nil, it is the error of everything.
type objects struct{ err error }

func (o objects) find(resource, namespace, name, known string) error {
	switch {
	case o.err != nil:
		return o.err
	case namespace != "runtimetest":
		return fmt.Errorf("%s in namespace %q", resource, namespace)
	case name != known:
		return apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
	default:
		return nil
	}
}

func (o objects) Secret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	if err := o.find("secrets", namespace, name, "pass"); err != nil {
		return nil, err
	}
	return &v1.Secret{Data: map[string][]byte{"WORD": []byte("sesame"), "NUMBER": []byte("7")}}, nil
}

func (o objects) ConfigMap(_ context.Context, namespace, name string) (*v1.ConfigMap, error) {
	if err := o.find("configmaps", namespace, name, "conf"); err != nil {
		return nil, err
	}
	return &v1.ConfigMap{Data: map[string]string{"WORD": "open", "COLOR": "green"}}, nil
}

// references returns a container for each kind of reference to a secret or a config map, without a
// command, by its name.
func references(configMap, secret, key string, optional bool) map[string]v1.Container {
	conf, pass := v1.LocalObjectReference{Name: configMap}, v1.LocalObjectReference{Name: secret}
	value := func(from *v1.EnvVarSource) v1.Container {
		return v1.Container{Env: []v1.EnvVar{{Name: "A_WORD", ValueFrom: from}}}
	}
	all := func(from v1.EnvFromSource) v1.Container {
		from.Prefix = "A_"
		return v1.Container{EnvFrom: []v1.EnvFromSource{from}}
	}
	return map[string]v1.Container{
		"all-of-a-map": all(v1.EnvFromSource{
			ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: conf, Optional: &optional},
		}),
		"all-of-a-secret": all(v1.EnvFromSource{
			SecretRef: &v1.SecretEnvSource{LocalObjectReference: pass, Optional: &optional},
		}),
		"key-of-a-map": value(&v1.EnvVarSource{
			ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: conf, Key: key, Optional: &optional},
		}),
		"key-of-a-secret": value(&v1.EnvVarSource{
			SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: pass, Key: key, Optional: &optional},
		}),
	}
}

// podOf returns a pod with a container for each reference, and the container "plain" without one.
func (e *env) podOf(references map[string]v1.Container, command []string) *v1.Pod {
	containers := []v1.Container{e.container("plain", command)}
	for name, from := range references {
		c := e.container(name, command)
		c.Env, c.EnvFrom = from.Env, from.EnvFrom
		containers = append(containers, c)
	}
	return e.pod(v1.RestartPolicyNever, containers...)
}

func withObjects(o runtime.Objects) change {
	return func(req *runtime.PodSync) { req.Objects = o }
}

func testObjects(e *env) {
	pod := e.podOf(references("conf", "pass", "WORD", false), e.Print("$(A_WORD)"))
	e.driveWith(pod, "all have exited", withObjects(objects{}), func(s *runtime.PodStatus) bool {
		for i := range pod.Spec.Containers {
			if !exited(s, pod.Spec.Containers[i].Name) {
				return false
			}
		}
		return true
	})
	for name, want := range map[string]string{
		"plain": "$(A_WORD)", "all-of-a-map": "open", "key-of-a-map": "open",
		"all-of-a-secret": "sesame", "key-of-a-secret": "sesame",
	} {
		assert.Equal(e, []string{want}, e.readLog(e.logPath(pod, name, "0.log")), name)
	}
}

// testOrderOfVariables has variables of one name. The last envFrom wins, and env wins over all.
func testOrderOfVariables(e *env) {
	c := e.container("main", e.Print("$(WORD) $(COLOR) $(NUMBER)"))
	refs := references("conf", "pass", "", false)
	conf, pass := refs["all-of-a-map"].EnvFrom[0], refs["all-of-a-secret"].EnvFrom[0]
	conf.Prefix, pass.Prefix = "", ""
	c.EnvFrom = []v1.EnvFromSource{conf, pass}
	c.Env = []v1.EnvVar{{Name: "NUMBER", Value: "8"}}
	pod := e.pod(v1.RestartPolicyNever, c)
	e.driveWith(pod, "main has exited", withObjects(objects{}), func(s *runtime.PodStatus) bool {
		return exited(s, "main")
	})
	assert.Equal(e, []string{"sesame green 8"}, e.readLog(e.logPath(pod, "main", "0.log")))
}

func testMissingObjects(e *env) {
	refs := references("gone", "gone", "WORD", false)
	pod := e.podOf(refs, e.Sleep)
	for what, known := range map[string]runtime.Objects{
		"there is no such object": objects{},
		"objects cannot be read":  objects{errors.New("unavailable")},
		"there are no objects":    nil,
	} {
		res, err := e.stepWith(pod, withObjects(known))
		require.Error(e, err, what)
		s := e.status(pod)
		for name := range refs {
			assert.Equal(e, "CreateContainerConfigError", res.Waiting[name].Reason, "%s: %s", what, name)
			assert.NotEmpty(e, res.Waiting[name].Message, "%s: %s", what, name)
			assert.Nil(e, s.Newest(name), "%s: container %s is not created", what, name)
		}
		assert.True(e, running(s, "plain"), "%s: the other container is started: %s", what, describe(s))
	}
}

func testOptionalObjects(e *env) {
	pod := e.podOf(references("gone", "gone", "WORD", true), e.Sleep)
	_, err := e.stepWith(pod, withObjects(objects{errors.New("unavailable")}))
	require.Error(e, err, "an optional object is needed if it is not known whether it exists")
	assert.Len(e, e.status(pod).Containers, 1)
	e.driveWith(pod, "all run", withObjects(objects{}), func(s *runtime.PodStatus) bool {
		for i := range pod.Spec.Containers {
			if !running(s, pod.Spec.Containers[i].Name) {
				return false
			}
		}
		return true
	})
}
