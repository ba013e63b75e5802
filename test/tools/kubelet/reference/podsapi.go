//go:build !v1.35

package main

import "k8s.io/kubernetes/pkg/kubelet/kubeletconfig"

const podsAPIDir = kubeletconfig.DefaultKubeletPodsAPIDirName
