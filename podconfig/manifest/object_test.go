package manifest_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func objectOptions(kinds ...string) manifest.Options {
	opts := loadOptions()
	opts.Kinds = kinds
	opts.Allow = manifest.AllowedRefs{Env: true, PullSecrets: true}
	return opts
}

const secretHead = "apiVersion: v1\nkind: Secret\nmetadata: {name: db}\n"

func TestLoadObjects(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in   string
		want []metav1.Object
		err  string // part of the message
	}{
		"secret": {in: secretHead + "type: example.com/x\ndata: {a: MQ==, b: MQ==}\nstringData: {b: two, c: three}\n", want: []metav1.Object{&v1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "default"}, Type: "example.com/x",
			Data: map[string][]byte{"a": []byte("1"), "b": []byte("two"), "c": []byte("three")},
		}}},
		"text alone, other namespace": {in: "{apiVersion: v1, kind: Secret, metadata: {name: db, namespace: shop}, stringData: {a: b}, immutable: true}", want: []metav1.Object{&v1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "shop"}, Type: v1.SecretTypeOpaque,
			Data: map[string][]byte{"a": []byte("b")}, Immutable: new(true),
		}}},
		"config map": {in: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf}\ndata: {a: '1', 8080: x}\nbinaryData: {b: /w==}\n", want: []metav1.Object{&v1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Name: "conf", Namespace: "default"},
			Data:       map[string]string{"a": "1", "8080": "x"}, BinaryData: map[string][]byte{"b": {0xff}},
		}}},
		"lists and a pod": {in: "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n- {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: a}]}}\n" +
			"---\napiVersion: v1\nkind: ConfigMapList\nitems:\n- metadata: {name: b}\n",
			want: []metav1.Object{emptyMap("a"), emptyMap("b")}},

		"no name":             {in: "apiVersion: v1\nkind: Secret\nmetadata: {generateName: a-}\n", err: "secret default/ is invalid: metadata.name: Required value"},
		"bad name":            {in: strings.Replace(secretHead, "db", "D_B", 1), err: `secret default/D_B is invalid: metadata.name: Invalid value: "D_B"`},
		"bad namespace":       {in: strings.Replace(secretHead, "name: db", "name: db, namespace: a.b", 1), err: `metadata.namespace: Invalid value: "a.b"`},
		"bad key":             {in: secretHead + "stringData: {'a b': c}\n", err: `data[a b]: Invalid value: "a b"`},
		"key twice":           {in: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: b}\nbinaryData: {a: MQ==}\n", err: `data[a]: Invalid value: "a": duplicate of key present in binaryData`},
		"too large":           {in: secretHead + "stringData: {a: " + strings.Repeat("x", manifest.MaxObjectSize+1) + "}\n", err: "data: Too long: may not be more than 1048576 bytes"},
		"large map":           {in: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: " + strings.Repeat("x", manifest.MaxObjectSize) + "}\nbinaryData: {b: MQ==}\n", err: "data: Too long"},
		"unknown field":       {in: secretHead + "dat: {}\n", err: `unknown field "dat"`},
		"pull secret":         {in: secretHead + "type: kubernetes.io/dockerconfigjson\ndata: {}\n", err: "data[.dockerconfigjson]: Required value: secrets of type kubernetes.io/dockerconfigjson have it"},
		"pull secret, old":    {in: secretHead + "type: kubernetes.io/dockercfg\nstringData: {.dockercfg: hunter2}\n", err: "data[.dockercfg]: Invalid value: must be a docker configuration in JSON"},
		"no base64":           {in: secretHead + "data: {a: hunter2!}\n", err: "data[a]: Invalid value: must be base64"},
		"a number":            {in: secretHead + "stringData: {a: 987654}\n", err: "stringData[a]: Invalid value: must be a string"},
		"a list":              {in: secretHead + "data: [hunter2]\n", err: "data: Invalid value: must be an object"},
		"a number in a map":   {in: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: 1}\n", err: "data[a]: Invalid value: 1: must be a string"},
		"place in a list":     {in: "apiVersion: v1\nkind: SecretList\nitems:\n- metadata: {name: A}\n", err: `items[0].metadata.name: Invalid value: "A"`},
		"place in documents":  {in: secretHead + "---\n" + secretHead + "type: kubernetes.io/dockercfg\n", err: "document 2 (line 4): secret default/db is invalid: data[.dockercfg]: Required value"},
		"another kind":        {in: "apiVersion: v1\nkind: Service\n", err: `kind: Unsupported value: "Service": supported values: "Pod", "Secret", "ConfigMap", "PodList", "SecretList", "ConfigMapList", "List"`},
		"another kind in it":  {in: "apiVersion: v1\nkind: SecretList\nitems:\n- {kind: ConfigMap, metadata: {name: a}}\n", err: `items[0].kind: Unsupported value: "ConfigMap": supported values: "Secret"`},
		"no kind in any list": {in: "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, metadata: {name: a}}\n", err: "items[0].kind: Required value"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, got, err := manifest.LoadAll([]byte(tc.in), objectOptions(manifest.PodKind, objects.SecretKind,
				objects.ConfigMapKind))
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				for _, value := range []string{"hunter2", "987654"} {
					assert.NotContains(t, err.Error(), value, "no message contains a secret")
				}
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tc.want, got)
		})
	}
}

func emptyMap(name string) *v1.ConfigMap {
	return &v1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
	}
}

func TestKindsAreRefused(t *testing.T) {
	t.Parallel()
	_, err := manifest.Load([]byte(minimal), objectOptions(objects.SecretKind, objects.ConfigMapKind))
	require.ErrorContains(t, err, `kind: Unsupported value: "Pod": supported values: "Secret", "ConfigMap"`)
	_, err = manifest.Load([]byte(secretHead), loadOptions())
	require.ErrorContains(t, err, `kind: Unsupported value: "Secret": supported values: "Pod"`)
	_, err = manifest.Load(nil, objectOptions(objects.SecretKind))
	require.ErrorContains(t, err, "no secret in it: the manifest is empty")
}

func TestValidateObjectUpdate(t *testing.T) {
	t.Parallel()
	secret := func(value string, immutable *bool) metav1.Object {
		return &v1.Secret{Data: map[string][]byte{"a": []byte(value)}, Immutable: immutable}
	}
	configMap := func(value string, immutable *bool) metav1.Object {
		return &v1.ConfigMap{BinaryData: map[string][]byte{"a": []byte(value)}, Immutable: immutable}
	}
	for name, tc := range map[string]struct {
		old, object metav1.Object
		want        []string // fields
	}{
		"secret, mutable":            {secret("1", nil), secret("2", new(true)), nil},
		"secret, explicitly mutable": {secret("1", new(false)), secret("2", nil), nil},
		"secret, the same":           {secret("1", new(true)), secret("1", new(true)), nil},
		"secret, immutable":          {secret("1", new(true)), secret("2", new(false)), []string{"immutable", "data"}},
		"secret, type":               {secret("1", new(true)), &v1.Secret{Type: "x", Data: map[string][]byte{"a": []byte("1")}, Immutable: new(true)}, []string{"type"}},
		"map, mutable":               {configMap("1", nil), configMap("2", new(true)), nil},
		"map, immutable":             {configMap("1", new(true)), configMap("2", nil), []string{"immutable", "binaryData"}},
		"map, more":                  {configMap("1", new(true)), &v1.ConfigMap{Data: map[string]string{"b": ""}, BinaryData: map[string][]byte{"a": []byte("1")}, Immutable: new(true)}, []string{"data"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, err := range manifest.ValidateObjectUpdate(tc.object, tc.old) {
				got = append(got, err.Field)
			}
			assert.Equal(t, tc.want, got)
		})
	}
}

func TestAllowedEnvAndPullSecrets(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:"
	opts := objectOptions()
	_, err := manifest.Load([]byte(head+testpod.EveryReference), opts)
	require.NoError(t, err)
	_, err = manifest.Load([]byte(head+testpod.EveryReference+"  serviceAccountName: sa\n"+testpod.EveryVolume), opts)
	var invalid *manifest.InvalidError
	require.ErrorAs(t, err, &invalid)
	var got []string
	for _, e := range invalid.Errs {
		got = append(got, e.Error())
	}
	assert.Equal(t, []string{
		"spec.serviceAccountName: Forbidden: static pods may not reference serviceaccounts",
		"spec.volumes[0]: Forbidden: static pods may not reference secrets (via secret volumes)",
		"spec.volumes[1]: Forbidden: static pods may not reference configmaps (via configmap volumes)",
		"spec.volumes[2]: Forbidden: static pods may not reference secrets (via projected volumes)",
	}, got)

	opts.Allow = manifest.AllowedRefs{}
	_, err = manifest.Load([]byte(head+testpod.EveryReference), opts)
	require.ErrorAs(t, err, &invalid)
	assert.Len(t, invalid.Errs, 7, err)
}

// FuzzLoadObjects: objects that are accepted are valid, and are the same after a round
// trip through JSON.
func FuzzLoadObjects(f *testing.F) {
	f.Add([]byte(secretHead+"data: {a: MQ==}\nstringData: {b: hunter2}\nimmutable: true\n"), true)
	f.Add([]byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: b}\nbinaryData: {c: MQ==}\n"), false)
	f.Add([]byte("apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: a}}\n---\n"+
		minimal), true)
	f.Add([]byte(secretHead+"data: {a: hunter2}\n"), false)
	f.Fuzz(func(t *testing.T, data []byte, lenient bool) {
		opts := objectOptions(manifest.PodKind, objects.SecretKind, objects.ConfigMapKind)
		if lenient {
			opts.Warn = func(error) {}
		}
		_, found, err := manifest.LoadAll(data, opts)
		if err != nil {
			assert.Less(t, len(err.Error()), maxError)
			return
		}
		for _, o := range found {
			require.Empty(t, manifest.ValidateObject(o))
			require.Empty(t, manifest.ValidateObjectUpdate(o, o))
			written, err := json.Marshal(o)
			require.NoError(t, err)
			_, again, err := manifest.LoadAll(written, opts)
			require.NoError(t, err)
			require.Len(t, again, 1)
			require.Equal(t, objects.RefOf(o), objects.RefOf(again[0]))
			rewritten, err := json.Marshal(again[0])
			require.NoError(t, err)
			require.JSONEq(t, string(written), string(rewritten))
		}
	})
}
