package translate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// environment is a set of variables in the order of their first appearance.
type environment struct {
	names  []string
	values map[string]string
	// edits are the names of the variables that have their values from [runtime.ContainerEdits].Env.
	edits map[string]bool
	// left is how many bytes there may be more.
	left int
}

func newEnvironment() *environment {
	return &environment{values: map[string]string{}, edits: map[string]bool{}, left: podspec.MaxArguments}
}

// set returns an error if no process can have so many variables. Variables that were
// replaced by others count, too.
func (e *environment) set(name, value string) error {
	if e.left -= len(name) + len(value); e.left < 0 {
		return fmt.Errorf("environment variable %q: %w: no process can have more than %d bytes of variables",
			clip(name), podspec.ErrTooLong, podspec.MaxArguments)
	}
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
	delete(e.edits, name)
	return nil
}

// clip shortens a name for an error.
func clip(name string) string { return name[:min(len(name), 100)] }

func (e *environment) get(name string) (string, bool) {
	v, ok := e.values[name]
	return v, ok
}

// getForEnv returns a variable that the value of another one may refer to.
func (e *environment) getForEnv(name string) (string, bool) {
	if e.edits[name] {
		return "", false
	}
	return e.get(name)
}

// keyValues returns the variables in CRI's type.
func (e *environment) keyValues() []*criv1.KeyValue {
	out := make([]*criv1.KeyValue, len(e.names))
	for i, name := range e.names {
		out[i] = &criv1.KeyValue{Key: name, Value: []byte(e.values[name])}
	}
	return out
}

// containerEnv has the variables of the edits, then those of services, resolves envFrom and then env, whose values
// may refer to all variables before them but for those of the edits. A later definition replaces an earlier one. Names
// are not checked: the API validates those of env, and does not restrict the keys of config maps and secrets.
func containerEnv(ctx context.Context, in *Container) (*environment, error) {
	env := newEnvironment()
	src := sources{objects: in.Objects, namespace: in.Pod.Spec.Namespace}
	for _, v := range in.Edits.Env {
		if err := env.set(v.Name, v.Value); err != nil {
			return nil, err
		}
		env.edits[v.Name] = true
	}
	for _, v := range in.Edits.ServiceEnv {
		if err := env.set(v.Name, v.Value); err != nil {
			return nil, err
		}
	}
	for i := range in.Spec.EnvFrom {
		from := &in.Spec.EnvFrom[i]
		data, err := src.all(ctx, from)
		if err != nil {
			return nil, err
		}
		for _, key := range slices.Sorted(maps.Keys(data)) {
			if err := env.set(from.Prefix+key, data[key]); err != nil {
				return nil, err
			}
		}
	}
	for i := range in.Spec.Env {
		v := &in.Spec.Env[i]
		value, ok, err := src.variable(ctx, in, v, env)
		if err != nil {
			return nil, err
		}
		if ok {
			if err := env.set(v.Name, value); err != nil {
				return nil, err
			}
		}
	}
	return env, nil
}

// sources resolves the references of one container's variables. It gets each object once,
// so that variables from the same object are consistent.
type sources struct {
	objects   runtime.Objects
	namespace string
	// configMaps and secrets have the data of the objects so far.
	configMaps map[string]map[string]string
	secrets    map[string]map[string]string
	files      envFiles
}

// all returns the variables of an envFrom, nil if the reference is optional and its object
// does not exist.
func (s *sources) all(ctx context.Context, from *v1.EnvFromSource) (map[string]string, error) {
	switch {
	case from.ConfigMapRef != nil:
		return s.configMap(ctx, from.ConfigMapRef.Name, isTrue(from.ConfigMapRef.Optional))
	case from.SecretRef != nil:
		return s.secret(ctx, from.SecretRef.Name, isTrue(from.SecretRef.Optional))
	default:
		return nil, nil
	}
}

// variable returns the value of a variable, or false as one does.
func (s *sources) variable(ctx context.Context, in *Container, v *v1.EnvVar,
	env *environment) (value string, ok bool, err error) {
	if v.Value == "" && v.ValueFrom != nil {
		return s.one(ctx, in, v.ValueFrom)
	}
	value, err = podspec.ExpandLimit(v.Value, env.left, env.getForEnv)
	if err != nil {
		return "", false, fmt.Errorf("environment variable %q: %w", clip(v.Name), err)
	}
	return value, true, nil
}

// one returns the value of a single variable, or false if the reference is optional and
// its object or key does not exist.
func (s *sources) one(ctx context.Context, in *Container, from *v1.EnvVarSource) (string, bool, error) {
	switch {
	case from.FieldRef != nil:
		value, err := fieldValue(in, from.FieldRef)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err := resourceFieldValue(in, from.ResourceFieldRef)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		data, err := s.configMap(ctx, ref.Name, isTrue(ref.Optional))
		return s.key("ConfigMap", ref.Name, ref.Key, isTrue(ref.Optional), data, err)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		data, err := s.secret(ctx, ref.Name, isTrue(ref.Optional))
		return s.key("Secret", ref.Name, ref.Key, isTrue(ref.Optional), data, err)
	case from.FileKeyRef != nil:
		return s.files.key(in, from.FileKeyRef)
	default:
		return "", true, nil
	}
}

// key returns the value of one key of an object's data.
func (s *sources) key(kind, name, key string, optional bool, data map[string]string, err error) (string, bool, error) {
	if err != nil {
		return "", false, err
	}
	value, ok := data[key]
	if !ok && !optional {
		return "", false, fmt.Errorf("couldn't find key %v in %s %v/%v", key, kind, s.namespace, name)
	}
	return value, ok, nil
}

// errNoObjects is the error of references on a node without Objects.
var errNoObjects = errors.New("this node has no source of config maps and secrets")

func (s *sources) configMap(ctx context.Context, name string, optional bool) (map[string]string, error) {
	if data, ok := s.configMaps[name]; ok {
		return data, nil
	}
	if s.objects == nil {
		return nil, s.missing("configMap", name, optional, errNoObjects)
	}
	cm, err := s.objects.ConfigMap(ctx, s.namespace, name)
	if err != nil {
		return nil, s.missing("configMap", name, optional, err)
	}
	data := cm.Data
	if s.configMaps == nil {
		s.configMaps = map[string]map[string]string{}
	}
	s.configMaps[name] = data
	return data, nil
}

func (s *sources) secret(ctx context.Context, name string, optional bool) (map[string]string, error) {
	if data, ok := s.secrets[name]; ok {
		return data, nil
	}
	if s.objects == nil {
		return nil, s.missing("secret", name, optional, errNoObjects)
	}
	secret, err := s.objects.Secret(ctx, s.namespace, name)
	if err != nil {
		return nil, s.missing("secret", name, optional, err)
	}
	data := make(map[string]string, len(secret.Data))
	for k, v := range secret.Data {
		data[k] = string(v)
	}
	if s.secrets == nil {
		s.secrets = map[string]map[string]string{}
	}
	s.secrets[name] = data
	return data, nil
}

// missing returns the error for a failed lookup, nil if the object does not exist and is
// optional. The text for objects that do not exist is kubelet's.
func (s *sources) missing(kind, name string, optional bool, err error) error {
	notFound := apierrors.IsNotFound(err)
	switch {
	case optional && (notFound || err == errNoObjects):
		return nil
	case notFound:
		return err
	}
	return fmt.Errorf("couldn't get %s %v/%v: %w", kind, s.namespace, name, err)
}

func isTrue(b *bool) bool { return b != nil && *b }
