package node

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	kubeletapis "k8s.io/kubelet/pkg/apis"
)

// ValidateLabels returns an error for each label that kubelet's --node-labels refuses: those
// that the API does not accept, and those of kubernetes.io and k8s.io that a node may not
// give itself.
func ValidateLabels(labels map[string]string) []error {
	errs := validLabels(labels)
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if isKubernetesLabel(key) && !kubeletapis.IsKubeletLabel(key) {
			errs = append(errs, fmt.Errorf("label %s: a node may not give itself this label; of kubernetes.io and "+
				"k8s.io it may have those with the prefixes %s, and %s",
				key, strings.Join(kubeletapis.KubeletLabelNamespaces(), ", "),
				strings.Join(kubeletapis.KubeletLabels(), ", ")))
		}
	}
	return errs
}

// validLabels returns an error for each label that the API does not accept.
func validLabels(labels map[string]string) (errs []error) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		for _, problem := range slices.Concat(validation.IsQualifiedName(key),
			validation.IsValidLabelValue(labels[key])) {
			errs = append(errs, fmt.Errorf("label %s=%s: %s", key, labels[key], problem))
		}
	}
	return errs
}

func isKubernetesLabel(key string) bool {
	namespace, _, ok := strings.Cut(key, "/")
	if !ok {
		return false
	}
	for _, domain := range []string{"kubernetes.io", "k8s.io"} {
		if namespace == domain || strings.HasSuffix(namespace, "."+domain) {
			return true
		}
	}
	return false
}
