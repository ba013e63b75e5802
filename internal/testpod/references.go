package testpod

// EveryReference is the spec of a pod, in YAML, with all the ways to refer to an object but
// those of volumes.
const EveryReference = `
  imagePullSecrets: [{name: pull}, {name: ""}]
  initContainers:
  - {name: init, image: i, env: [{name: A, valueFrom: {configMapKeyRef: {name: init-map, key: a}}}]}
  containers:
  - name: main
    image: i
    envFrom: [{configMapRef: {name: map}}, {secretRef: {name: secret, optional: true}}]
    env:
    - {name: A, valueFrom: {secretKeyRef: {name: key, key: a}}}
    - {name: B, valueFrom: {secretKeyRef: {name: key, key: b}}}
    - {name: C, valueFrom: {configMapKeyRef: {name: map, key: c}}}
    - {name: D, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: E, value: e}
`

// EveryVolume continues [EveryReference] with the volumes that refer to objects.
const EveryVolume = `  volumes:
  - {name: s, secret: {secretName: mounted}}
  - {name: m, configMap: {name: mounted}}
  - {name: p, projected: {sources: [{secret: {name: in-projected}}, {configMap: {name: in-projected}}, {downwardAPI: {}}]}}
`
