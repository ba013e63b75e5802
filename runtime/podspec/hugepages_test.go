package podspec_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func TestHugePageSize(t *testing.T) {
	for name, want := range map[v1.ResourceName]string{
		"hugepages-2Mi":  "2MB",
		"hugepages-1Gi":  "1GB",
		"hugepages-64Ki": "64KB",
		"hugepages-512":  "512B",
		"hugepages-":     "",
		"hugepages-0":    "",
		"hugepages-x":    "",
		"memory":         "",
	} {
		got, ok := podspec.HugePageSize(name)
		assert.Equal(t, want, got, name)
		assert.Equal(t, want != "", ok, name)
	}
}
