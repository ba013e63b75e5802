//go:build unix

package file

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// serverManifest is like those that kubeadm writes, the commonest static pods.
const serverManifest = `apiVersion: v1
kind: Pod
metadata:
  annotations:
    example.com/server.advertise-address.endpoint: 192.168.1.10:6443
  labels:
    component: server-%[1]d
    tier: control-plane
  name: server-%[1]d
  namespace: kube-system
spec:
  containers:
  - command:
    - server
    - --advertise-address=192.168.1.10
    - --allow-privileged=true
    - --authorization-mode=Node,RBAC
    - --client-ca-file=/etc/server/pki/ca.crt
    - --tls-cert-file=/etc/server/pki/server.crt
    - --tls-private-key-file=/etc/server/pki/server.key
    image: registry.example.com/server:v1.36.0
    imagePullPolicy: IfNotPresent
    env:
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    livenessProbe:
      failureThreshold: 8
      httpGet:
        host: 192.168.1.10
        path: /livez
        port: probe-port
        scheme: HTTPS
      initialDelaySeconds: 10
      periodSeconds: 10
      timeoutSeconds: 15
    readinessProbe:
      failureThreshold: 3
      httpGet: {host: 192.168.1.10, path: /readyz, port: probe-port, scheme: HTTPS}
      periodSeconds: 1
    name: server
    ports:
    - containerPort: 6443
      name: probe-port
      protocol: TCP
    resources:
      requests:
        cpu: 250m
        memory: 128Mi
    volumeMounts:
    - mountPath: /etc/ssl/certs
      name: ca-certs
      readOnly: true
    - mountPath: /etc/server/pki
      name: server-certs
      readOnly: true
  hostNetwork: true
  priority: 2000001000
  priorityClassName: system-node-critical
  securityContext:
    seccompProfile:
      type: RuntimeDefault
  volumes:
  - hostPath:
      path: /etc/ssl/certs
      type: DirectoryOrCreate
    name: ca-certs
  - hostPath:
      path: /etc/server/pki
      type: DirectoryOrCreate
    name: server-certs
status: {}
`

// BenchmarkDirectory reads 5000 manifests from disk: the first look at them, which
// decodes, defaults and validates each, and a look that finds nothing new.
func BenchmarkDirectory(b *testing.B) {
	const files = 5000
	dir := b.TempDir()
	old := time.Now().Add(-time.Hour)
	for i := range files {
		path := filepath.Join(dir, fmt.Sprintf("%04d.yaml", i))
		if err := os.WriteFile(path, fmt.Appendf(nil, serverManifest, i), 0o600); err != nil {
			b.Fatal(err)
		}
		if err := os.Chtimes(path, old, old); err != nil {
			b.Fatal(err)
		}
	}
	// The time of the processor does not depend on what else the machine does.
	cpu := func() time.Duration {
		var used unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
			b.Fatal(err)
		}
		return time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	perManifest := func(b *testing.B, begun time.Duration) {
		b.ReportMetric(float64((cpu()-begun).Microseconds())/float64(b.N)/files, "cpu-µs/manifest")
	}
	look := func(b *testing.B, s *state) {
		s.scan(b.Context(), time.Now())
		if len(s.pods()) != files || len(s.problems) > 0 {
			b.Fatal(len(s.pods()), s.problems)
		}
	}
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		begun := cpu()
		for b.Loop() {
			look(b, newState(dir, "n", New(dir, Options{}).opts))
		}
		perManifest(b, begun)
	})
	b.Run("unchanged", func(b *testing.B) {
		b.ReportAllocs()
		s := newState(dir, "n", New(dir, Options{}).opts)
		look(b, s)
		begun := cpu()
		for b.Loop() {
			look(b, s)
		}
		perManifest(b, begun)
	})
}
