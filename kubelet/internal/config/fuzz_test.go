package config

import (
	"os"
	"path/filepath"
	"testing"
)

func FuzzConfigFile(f *testing.F) {
	const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	f.Add([]byte(header + "staticPodPath: pods\npodPidsLimit: 3\nfeatureGates: {EventedPLEG: true}\n"))
	f.Add([]byte(header + "crashLoopBackOff: {maxContainerRestartPeriod: 1s}\nsystemReserved: {cpu: 1}\nlogging: " +
		"{verbosity: 9}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := program.Parse([]string{"--config", path})
		if err == nil && s == nil {
			t.Error("neither settings nor an error")
		}
	})
}
