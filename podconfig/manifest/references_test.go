package manifest_test

import (
	"testing"

	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestStaticPodReferences has each kind of object that a pod can refer to, and the error
// without an API server. The texts are those of kubelet.
func TestStaticPodReferences(t *testing.T) {
	t.Parallel()
	const c, init, v = "spec.containers[0].", "spec.initContainers[0].", "spec.volumes[0]"
	const once = "\n  initContainers:\n  - name: once\n    image: a"
	volume := func(source string) string { return "\n  volumes: [{name: v, " + source + "}]" }
	for name, tc := range map[string]struct{ spec, container, path, what string }{
		"service account":       {spec: "\n  serviceAccountName: a", path: "spec.serviceAccountName", what: "serviceaccounts"},
		"service account's old": {spec: "\n  serviceAccount: a", path: "spec.serviceAccountName", what: "serviceaccounts"},
		"pull secret":           {spec: "\n  imagePullSecrets: [{name: a}]", path: "spec.imagePullSecrets[0]", what: "secrets"},
		"claim":                 {spec: "\n  resourceClaims: [{name: a, resourceClaimName: b}]", path: "spec.resourceClaims", what: "resourceclaims"},
		"claim from a template": {spec: "\n  resourceClaims: [{name: a, resourceClaimTemplateName: b}]", path: "spec.resourceClaims", what: "resourceclaims"},

		"secret's key":              {container: "\n    env: [{name: a, valueFrom: {secretKeyRef: {name: a, key: b}}}]", path: c + "env[0].valueFrom.secretKeyRef", what: "secrets"},
		"optional secret's key":     {container: "\n    env: [{name: a, valueFrom: {secretKeyRef: {name: a, key: b, optional: true}}}]", path: c + "env[0].valueFrom.secretKeyRef", what: "secrets"},
		"config map's key":          {container: "\n    env: [{name: a, value: b}, {name: a, valueFrom: {configMapKeyRef: {name: a, key: b}}}]", path: c + "env[1].valueFrom.configMapKeyRef", what: "configmaps"},
		"secret as environment":     {container: "\n    envFrom: [{secretRef: {name: a}}]", path: c + "envFrom[0].secretRef", what: "secrets"},
		"config map as environment": {container: "\n    envFrom: [{configMapRef: {name: a}}]", path: c + "envFrom[0].configMapRef", what: "configmaps"},
		"secret's key, init":        {spec: once + "\n    env: [{name: a, valueFrom: {secretKeyRef: {name: a, key: b}}}]", path: init + "env[0].valueFrom.secretKeyRef", what: "secrets"},
		"config map, init":          {spec: once + "\n    envFrom: [{configMapRef: {name: a}}]", path: init + "envFrom[0].configMapRef", what: "configmaps"},
		"config map, sidecar":       {spec: once + "\n    restartPolicy: Always\n    envFrom: [{configMapRef: {name: a}}]", path: init + "envFrom[0].configMapRef", what: "configmaps"},

		"secret":                  {spec: volume("secret: {secretName: a}"), path: v, what: "secrets (via secret volumes)"},
		"config map":              {spec: volume("configMap: {name: a}"), path: v, what: "configmaps (via configmap volumes)"},
		"volume claim":            {spec: volume("persistentVolumeClaim: {claimName: a}"), path: v, what: "persistentvolumeclaims"},
		"volume claim's template": {spec: volume("ephemeral: {volumeClaimTemplate: {spec: {}}}"), path: v, what: "persistentvolumeclaims (via ephemeral volumes)"},
		"CSI":                     {spec: volume("csi: {driver: a}"), path: v, what: "csidrivers (via CSI volumes)"},
		"GlusterFS":               {spec: volume("glusterfs: {endpoints: a, path: b}"), path: v, what: "endpoints (via glusterFS volumes)"},
		"Azure file":              {spec: volume("azureFile: {secretName: a, shareName: b}"), path: v, what: "secrets (via azureFile volumes)"},
		"CephFS's secret":         {spec: volume("cephfs: {monitors: [a], secretRef: {name: a}}"), path: v, what: "secrets"},
		"Cinder's secret":         {spec: volume("cinder: {volumeID: a, secretRef: {name: a}}"), path: v, what: "secrets"},
		"flex volume's secret":    {spec: volume("flexVolume: {driver: a/b, secretRef: {name: a}}"), path: v, what: "secrets"},
		"iSCSI's secret":          {spec: volume("iscsi: {targetPortal: a, iqn: b, lun: 0, secretRef: {name: a}}"), path: v, what: "secrets"},
		"RBD's secret":            {spec: volume("rbd: {monitors: [a], image: b, secretRef: {name: a}}"), path: v, what: "secrets"},
		"ScaleIO's secret":        {spec: volume("scaleIO: {gateway: a, system: b, secretRef: {name: a}}"), path: v, what: "secrets"},
		"StorageOS's secret":      {spec: volume("storageos: {secretRef: {name: a}}"), path: v, what: "secrets"},

		"projected secret":       {spec: volume("projected: {sources: [{secret: {name: a}}]}"), path: v, what: "secrets (via projected volumes)"},
		"projected config map":   {spec: volume("projected: {sources: [{downwardAPI: {}}, {configMap: {name: a}}]}"), path: v, what: "configmaps (via projected volumes)"},
		"projected trust bundle": {spec: volume("projected: {sources: [{clusterTrustBundle: {name: a, path: b}}]}"), path: v, what: "clustertrustbundles"},
		"projected certificate":  {spec: volume("projected: {sources: [{podCertificate: {signerName: a/b, keyType: ED25519, keyPath: c}}]}"), path: v, what: "podcertificates"},

		"none: nothing but the node": {
			spec: once + volume("emptyDir: {}}, {name: h, hostPath: {path: /x}}, {name: d, downwardAPI: {}}, {name: "+
				"i, image: {reference: a}}, {name: net, nfs: {server: a, path: /b}}, "+
				"{name: c, iscsi: {targetPortal: a, iqn: b, lun: 0}}, {name: p, projected: {sources: [{downwardAPI: {}}]}"),
			container: "\n    env: [{name: a, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := []byte(minimal + tc.container + tc.spec + "\n")
			_, err := manifest.Load(in, loadOptions())
			if tc.path == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.path+": Forbidden: static pods may not reference "+tc.what)

			allowed := loadOptions()
			allowed.Allow.All = true
			_, err = manifest.Load(in, allowed)
			require.NoError(t, err)
		})
	}
}

// TestAllowedRefs tries each permission with references of every kind: it accepts the
// references that it names, and no others.
func TestAllowedRefs(t *testing.T) {
	t.Parallel()
	volume := func(source string) string { return "  volumes: [{name: v, " + source + "}]\n" }
	env, pulls, volumes := manifest.AllowedRefs{Env: true}, manifest.AllowedRefs{PullSecrets: true},
		manifest.AllowedRefs{Volumes: true}
	for name, tc := range map[string]struct {
		lines string
		by    manifest.AllowedRefs // the one permission that it takes, beside All
	}{
		"variable from a secret":      {"    env: [{name: a, valueFrom: {secretKeyRef: {name: a, key: b}}}]\n", env},
		"variable from a config map":  {"    env: [{name: a, valueFrom: {configMapKeyRef: {name: a, key: b}}}]\n", env},
		"variables from a secret":     {"    envFrom: [{secretRef: {name: a}}]\n", env},
		"variables from a config map": {"    envFrom: [{configMapRef: {name: a}}]\n", env},
		"pull secret":                 {"  imagePullSecrets: [{name: a}]\n", pulls},
		"secret volume":               {volume("secret: {secretName: a}"), volumes},
		"config map volume":           {volume("configMap: {name: a}"), volumes},
		"projected volume":            {volume("projected: {sources: [{secret: {name: a}}, {configMap: {name: a}}]}"), volumes},
		"projected token":             {"  serviceAccountName: a\n" + volume("projected: {sources: [{secret: {name: a}}, {serviceAccountToken: {path: x}}]}"), manifest.AllowedRefs{All: true}},
		"empty projection":            {volume("projected: {sources: [{}]}"), manifest.AllowedRefs{All: true}},
		"credentials of a volume":     {volume("rbd: {monitors: [a], image: b, secretRef: {name: a}}"), manifest.AllowedRefs{All: true}},
		"claim":                       {volume("persistentVolumeClaim: {claimName: a}"), manifest.AllowedRefs{All: true}},
		"service account":             {"  serviceAccountName: a\n", manifest.AllowedRefs{All: true}},
		"device claim":                {"  resourceClaims: [{name: a, resourceClaimName: b}]\n", manifest.AllowedRefs{All: true}},
	} {
		for _, allow := range []manifest.AllowedRefs{{}, env, pulls, volumes, {All: true}} {
			opts := loadOptions()
			opts.Allow = allow
			_, err := manifest.Load([]byte(minimal+tc.lines), opts)
			if allow == tc.by || allow.All {
				require.NoError(t, err, "%s with %+v", name, allow)
			} else {
				require.ErrorAs(t, err, new(*manifest.InvalidError), "%s with %+v", name, allow)
			}
		}
	}
}

// TestServiceAccountTokens has the one reference that requires another one.
func TestServiceAccountTokens(t *testing.T) {
	t.Parallel()
	in := minimal + "  volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: x}}]}}]\n"
	_, err := manifest.Load([]byte(in), loadOptions())
	require.ErrorContains(t, err, "spec.volumes[0]: Forbidden: static pods may not reference serviceaccounts (via "+
		"projected volumes)")

	allowed := loadOptions()
	allowed.Allow.All = true
	_, err = manifest.Load([]byte(in), allowed)
	require.ErrorContains(t, err, "spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden: must not be "+
		"specified when serviceAccountName is not set")
	_, err = manifest.Load([]byte(in+"  serviceAccountName: a\n"), allowed)
	require.NoError(t, err)
}

func TestEmptyProjections(t *testing.T) {
	t.Parallel()
	in := []byte(minimal + "  volumes: [{name: v, projected: {sources: [{}]}}]\n")
	_, err := manifest.Load(in, loadOptions())
	require.ErrorContains(t, err, "spec.volumes[0].projected.sources[0]: Required value: must specify a source")
	allowed := loadOptions()
	allowed.Allow.All = true
	pods, err := manifest.Load(in, allowed)
	require.NoError(t, err, "as the API server takes it")
	assert.Len(t, pods, 1)
}

// TestObjectVolumes has invalid volumes of secrets and config maps.
func TestObjectVolumes(t *testing.T) {
	t.Parallel()
	const v = "spec.volumes[0]."
	for name, tc := range map[string]struct{ volume, want string }{
		"secret without a name":     {"secret: {}", v + "secret.secretName: Required value"},
		"secret's mode":             {"secret: {secretName: a, defaultMode: 512}", v + "secret.defaultMode: Invalid value: 512"},
		"config map without a name": {"configMap: {}", v + "configMap.name: Required value"},
		"no key":                    {"configMap: {name: a, items: [{path: x}]}", v + "configMap.items[0].key: Required value"},
		"no path":                   {"secret: {secretName: a, items: [{key: x}]}", v + "secret.items[0].path: Required value"},
		"path out of the volume":    {"secret: {secretName: a, items: [{key: x, path: a/../../b}]}", v + "secret.items[0].path: Invalid value: \"a/../../b\": must not contain '..'"},
		"reserved path":             {"secret: {secretName: a, items: [{key: x, path: ..data}]}", v + "secret.items[0].path: Invalid value: \"..data\": must not start with '..'"},
		"mode of a key":             {"configMap: {name: a, items: [{key: x, path: z, mode: -1}]}", v + "configMap.items[0].mode: Invalid value: -1"},
		"projected without a name":  {"projected: {sources: [{secret: {}}]}", v + "projected.sources[0].secret.name: Required value"},
		"the same file": {
			"projected: {sources: [{secret: {name: a, items: [{key: x, path: z}]}}, {configMap: {name: a, items: " +
				"[{key: x, path: z}]}}]}",
			v + `projected: Invalid value: "z": conflicting duplicate paths`,
		},
		"short-lived token": {"projected: {sources: [{serviceAccountToken: {path: x, expirationSeconds: 599}}]}", v + "projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 599"},
		"claim":             {"persistentVolumeClaim: {}", v + "persistentVolumeClaim.claimName: Required value"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := loadOptions()
			opts.Allow.All = true
			_, err := manifest.Load([]byte(minimal+"  volumes: [{name: v, "+tc.volume+"}]\n"), opts)
			require.ErrorContains(t, err, tc.want)
		})
	}
}
