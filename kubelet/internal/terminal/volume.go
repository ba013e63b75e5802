package terminal

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// VolumeText returns the type of a volume, and what it has the content of.
func VolumeText(s *v1.VolumeSource) string {
	switch {
	case s.HostPath != nil:
		return "hostPath " + s.HostPath.Path
	case s.PersistentVolumeClaim != nil:
		return "claim " + s.PersistentVolumeClaim.ClaimName
	case s.ConfigMap != nil:
		return "ConfigMap " + s.ConfigMap.Name
	case s.Secret != nil:
		return "Secret " + s.Secret.SecretName
	case s.NFS != nil:
		return "NFS " + s.NFS.Server + ":" + s.NFS.Path
	case s.CSI != nil:
		return "CSI driver " + s.CSI.Driver
	case s.EmptyDir != nil && s.EmptyDir.SizeLimit != nil:
		return strings.TrimSpace("emptyDir "+string(s.EmptyDir.Medium)) + ", limit " + s.EmptyDir.SizeLimit.String()
	}
	data, err := json.Marshal(s)
	types := map[string]any{}
	if err != nil || json.Unmarshal(data, &types) != nil {
		return ""
	}
	return strings.Join(slices.Sorted(maps.Keys(types)), ", ") // one
}
