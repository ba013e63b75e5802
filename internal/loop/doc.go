// Package loop attaches files and devices to loop devices.
package loop
