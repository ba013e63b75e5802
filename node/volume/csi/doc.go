// Package csi sets up volumes of drivers of the Container Storage Interface.
package csi
