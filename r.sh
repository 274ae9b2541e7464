set -u
M=/tmp/attack12/m/f2.plan; D=/tmp/attack12/m/fs.safetensors
rm -rf ck log
penstock run $M -n 2 --transport mpi --threads 1 -m 2000 --data $D --steps 1000 --checkpoint ck --checkpoint-every 3 --log-dir log --job j --watchdog 20 "$@" 
