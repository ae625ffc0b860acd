"""The rules of the workload controllers: StatefulSets, ephemeral claims, ownership, zonal upgrade."""
